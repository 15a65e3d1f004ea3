// strategies/planned.hpp: serves steps from a plan of earlier steps, on pages of virtual memory.
// SPDX-License-Identifier: Apache-2.0
//
// A program that runs in steps requests nearly the same blocks in each step. A profile of earlier
// steps, of this run or of a previous one (option `plan`), contains the requests of a step and the
// end of each block. Every block that does not outlive the next step gets a planned place in one
// address range. A request takes its place if it is no larger than planned and the place is free.
// Other requests are served from pools by best fit with coalescing, as are all requests until a
// step is known and the requests of steps whose large sizes follow no pattern. The smallest blocks
// come from chunks of equal blocks instead. Steps begin at the marks of a trace or, without marks,
// where the sequence of sizes repeats.
//
// Addresses are reserved, and memory is mapped page by page where blocks are placed. If another
// page is needed, a page without a block is unmapped before more memory is requested from the
// device. So a step that differs from the plan costs device calls, but no memory except partly used
// pages. A planned request or free takes O(pages / 64) time; others take as long as in best fit.
//
// Bad at: programs that never repeat themselves, because their pages move again and again.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <utility>
#include <vector>

#include "parts/stitching.hpp"
#include "strategies/planned/mapped_range.hpp"
#include "strategies/planned/plan_file.hpp"
#include "strategies/planned/profile.hpp"
#include "strategies/planned/small_blocks.hpp"
#include "strategies/planned/step_finder.hpp"

namespace allocbench {

// The default of the option `page`: the larger a page, the fewer device calls, each of which costs
// the same, and the more bytes of pages that are in use only in part.
constexpr Size usual_page(Size capacity, Size granularity) {
  Size const largest = std::clamp(std::bit_floor(capacity / 8192), 2 * kMiB, 8 * kMiB);
  return std::max(granularity, round_down(largest, granularity));
}

class Planned : public Stitching {
 public:
  static constexpr Option options[] = {
      {"plan", OptionType::kText, "",
       "file written by `allocbench plan -o` for an earlier run; default: learn from this run"},
      {"page", OptionType::kBytes, "",
       "bytes mapped or unmapped at a time, a multiple of the device's granularity; default: the "
       "largest power of two up to 1/8192 of the device's capacity, from 2MiB to 8MiB"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "planned",
      .summary = "places blocks by a plan that it learns from earlier steps, on mapped pages",
      .worst_case = "outside: almost one page per block, if the program never repeats itself",
      .reference = "own design; after STAlloc (arXiv 2507.16274) and GMLake (ASPLOS 2024)",
      .options = options,
      .largest_request =
          [](Size capacity) { return round_down(capacity, usual_page(capacity, 2 * kMiB)); },
      .exemption = "memory is mapped in pages of 2 to 8 MiB",
  };

  Planned(Device& device, Options const& given)
      : Stitching(device, given, page_of(device, given), StepKind::kLeast, 0),
        profile_(given.given("plan") ? PlanFile::read_profile(given, "plan") : Profile()),
        plan_(page()),
        small_(device.granularity()) {}

  StrategyInfo const& info() const override { return strategy; }

 private:
  // While steps repeat exactly, pages stay where they are until reserved bytes exceed the peak load
  // by this fraction.
  static constexpr double kSlack = 1.0 / 105;
  static Size page_of(Device const& device, Options const& given) {
    if (given.given("page")) return given.bytes("page");
    return usual_page(device.capacity(), device.granularity());
  }

  struct Served {
    std::uint64_t requests = 0;
    Size bytes = 0;
    void count(Size requested) {
      ++requests;
      bytes += requested;
    }
  };

 protected:
  [[gnu::flatten]] Block do_allocate(Size requested, Stream stream) override {
    Size const size = round_up(requested, StepKind::kUnit);
    if (begins_step(requested)) {
      profile_.begin_step();
      set_slack(profile_.repeats() ? kSlack : 0);
      streams_done();
      small_.forget_empty();
      place_was_occupied_ = std::exchange(place_occupied_, false);
    }
    auto const [ticket, offset] = profile_.request(requested);
    if (offset != Profile::kNowhere) {
      if (Block const block = from_plan(offset, size, requested, ticket); block.size != 0) {
        planned_.count(requested);
        return block;
      }
      profile_.missed_place();
    }
    if (size <= SmallBlocks::kLargest)
      if (Block const block = from_chunks(size, requested, stream); block.size != 0) {
        fallback_.count(requested);
        return block;
      }
    Index const index = allocate_in_pools(size, requested, stream);
    if (index == kNone) return {};
    fallback_.count(requested);
    if (requested >= StepKind::kLeast) {
      if (tickets_.size() <= index) tickets_.resize(2 * std::size_t{index} + 1);
      tickets_[index] = ticket;
    }
    return block(index);
  }

  [[gnu::flatten]] Block do_deallocate(Address address, Stream stream) override {
    if (plan_.contains(address)) {
      auto const [block, ticket] = plan_.remove(address);
      if (block.size != 0) profile_.freed(ticket);
      return block;
    }
    if (small_.contains(address))
      return small_.deallocate(address, without_pool(stream) != small_stream_);
    auto const [block, index] = deallocate_in_pools(address, stream);
    if (index != kNone && block.requested >= StepKind::kLeast) profile_.freed(tickets_[index]);
    return block;
  }

  void do_trim() override {
    trim_pools();
    do_give_up(plan_.mapped() + small_.mapped());
  }

  void do_step() override { marked_ = mark_ = true; }

  std::vector<Segment> do_snapshot() const override {
    auto segments = blocks().snapshot();
    std::ranges::move(plan_.snapshot(), std::back_inserter(segments));
    std::ranges::move(small_.snapshot(), std::back_inserter(segments));
    return segments;
  }

  Size do_largest_free() const override {
    return std::max({blocks().largest_free(), plan_.largest_free(), small_.largest_free()});
  }

  void do_check() const override {
    blocks().check();
    plan_.check_pages();
    small_.check();
  }

  Counters do_counters() const override {
    Counters counters = stitching_counters();
    counters.insert(counters.end(), {{"planned_requests", planned_.requests},
                                     {"planned_bytes", planned_.bytes},
                                     {"fallback_requests", fallback_.requests},
                                     {"fallback_bytes", fallback_.bytes},
                                     {"plans", profile_.plans()}});
    return counters;
  }

  Size do_spare() const override { return plan_.idle() + small_.idle(); }

  // Unmaps idle pages, first of the plan and then of the small blocks.
  void do_give_up(Size most) override {
    if (!returns_memory()) return;
    if (small_.pages.idle() > 0) small_.forget_empty();
    Size rest = most;
    for (MappedRange* range : std::initializer_list<MappedRange*>{&plan_, &small_})
      while (rest >= range->page() && range->pages.idle() > 0) {
        PageUse::Run const idle = range->pages.idle_run(rest / range->page());
        unmap(range->begin(idle), range->bytes(idle), range->page());
        range->pages.set_mapped(idle, false);
        rest -= range->bytes(idle);
      }
  }

  void do_streams_done() override { small_.streams_done(); }

 private:
  // Without marks, steps begin where the profile predicts them while its predictions hold, and
  // otherwise where the step finder detects them.
  bool begins_step(Size requested) {
    if (marked_) return std::exchange(mark_, false);
    bool const at_anchor = finder_.begins(requested, counted().requested.current);
    return profile_.follows() ? profile_.complete() : at_anchor;
  }

  Block from_plan(Size offset, Size size, Size requested, Profile::Ticket ticket) {
    if (!plan_.is_open() && !open(plan_, offset + size)) return {};
    Block const block{plan_.begin() + offset, size, requested};
    PageUse::Run const run = plan_.touched(block);
    if (!plan_.place(block, run, ticket)) {
      place_occupied_ = true;
      return {};
    }
    if (plan_.pages.mapped(run) || map_pages(plan_, run, size)) return block;
    plan_.remove(block.address);
    return {};
  }

  // Blocks of other streams, and those for which there is no memory left, come from the pools.
  Block from_chunks(Size size, Size requested, Stream stream) {
    if (!small_.is_open()) {
      if (!open(small_, page())) return {};
      small_stream_ = without_pool(stream);
    }
    if (without_pool(stream) != small_stream_) return {};
    if (Block const block = small_.allocate(size, requested); block.size != 0) return block;
    PageUse::Run const run = small_.unmapped_page();
    if (run.count == 0 || !has_room(small_.page()) || !map_pages(small_, run, size)) return {};
    small_.see_mapped(run);
    return small_.allocate(size, requested);
  }

  // Reserves addresses for twice the capacity of the device, or as many as it provides.
  [[gnu::noinline]] bool open(MappedRange& range, Size least) {
    for (Size size = 2 * device().capacity(); size >= least; size /= 2) {
      Size const pages = round_up(size, page());
      Address const begin = reserve(pages);
      if (begin == 0) continue;
      range.open(begin, pages);
      return true;
    }
    return false;
  }

  // Maps the pages of a new block of this size that are not mapped. Returns false, and maps
  // nothing, if there is not enough memory. Free pages of the pools are moved there if reserved
  // bytes would otherwise exceed the peak load. Idle pages of the plan will soon be needed again,
  // so they are moved only if reserved bytes would also exceed the expected need of the step.
  [[gnu::noinline]] bool map_pages(MappedRange& range, PageUse::Run run, Size size) {
    for (;;) {
      PageUse::Run const missing = range.pages.first_run(run, false);
      if (missing.count == 0) return true;
      Size const bytes = range.bytes(missing);
      Size const given_up = round_up(bytes, page());  // the plan and the pools unmap whole pages
      Size const load = std::max(counted().allocated.peak, counted().allocated.current + size);
      auto const most = static_cast<Size>(static_cast<double>(load) * (1 + slack()));
      give_up_free_pages(excess(most, bytes));
      do_give_up(excess(std::max(most, needed()), bytes));
      if (map_run(range, missing)) continue;
      do_give_up(given_up - give_up_free_pages(given_up));
      if (!map_run(range, missing)) return false;
    }
  }

  // Bytes that the pools and the plan will need until the end of this step; 0 if unknown, because a
  // planned place was occupied in this step or the previous one.
  Size needed() const {
    bool const known = !place_occupied_ && !place_was_occupied_;
    return known ? profile_.height() + counted().reserved.current - plan_.mapped() : 0;
  }

  // The part of the `missing` bytes that would raise reserved bytes above `most`.
  Size excess(Size most, Size missing) const {
    Size const reserved = counted().reserved.current + missing;
    return reserved <= most ? 0 : round_up(std::min(missing, reserved - most), page());
  }

  bool map_run(MappedRange& range, PageUse::Run run) {
    if (!map(range.begin(run), range.bytes(run), range.page())) return false;
    range.pages.set_mapped(run, true);
    return true;
  }

  Profile profile_;
  StepFinder finder_;
  bool marked_ = false;  // the trace has marks, so steps need not be detected
  bool mark_ = false;    // a step begins with the next request
  // A planned place was occupied in this step, and in the previous step.
  bool place_occupied_ = false, place_was_occupied_ = false;

  PlannedRange<Profile::Ticket> plan_;  // the range of planned blocks
  SmallBlocks small_;
  Stream small_stream_ = 0;               // the stream of the small blocks
  std::vector<Profile::Ticket> tickets_;  // of the larger blocks in pools, by index
  Served planned_, fallback_;
};

}  // namespace allocbench

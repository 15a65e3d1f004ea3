// strategies/planned.cpp: serves steps from a plan of earlier steps, on pages of virtual memory.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/planned.hpp"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "strategies/planned/profile.hpp"

namespace allocbench {
namespace {

// While steps repeat exactly, pages stay where they are until reserved bytes exceed the peak load
// by this fraction.
constexpr double kSlack = 1.0 / 105;

Size page_of(Device const& device, Options const& given) {
  if (given.given("page")) return given.bytes("page");
  return usual_page(device.capacity(), device.granularity());
}

}  // namespace

Planned::Planned(Device& device, Options const& given)
    : Stitching(device, given, page_of(device, given), StepKind::kLeast, 0),
      profile_(given.given("plan") ? read_profile(given, "plan") : Profile()),
      plan_(page()),
      small_(device.granularity()) {}

Block Planned::do_allocate(Size requested, Stream stream) {
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

Block Planned::do_deallocate(Address address, Stream stream) {
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

// Without marks, steps begin where the profile predicts them while its predictions hold, and
// otherwise where the step finder detects them.
bool Planned::begins_step(Size requested) {
  if (marked_) return std::exchange(mark_, false);
  bool const at_anchor = finder_.begins(requested, counted().requested.current);
  return profile_.follows() ? profile_.complete() : at_anchor;
}

Block Planned::from_plan(Size offset, Size size, Size requested, Profile::Ticket ticket) {
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
Block Planned::from_chunks(Size size, Size requested, Stream stream) {
  if (!small_.is_open()) {
    if (!open(small_, page())) return {};
    small_stream_ = without_pool(stream);
  }
  if (without_pool(stream) != small_stream_) return {};
  if (Block const block = small_.allocate(size, requested); block.size != 0) return block;
  PageUse::Run const run = small_.unmapped_page();
  if (run.count == 0 || room() < small_.page() || !map_pages(small_, run, size)) return {};
  small_.see_mapped(run);
  return small_.allocate(size, requested);
}

// Reserves addresses for twice the capacity of the device, or as many as it provides.
bool Planned::open(MappedRange& range, Size least) {
  for (Size size = 2 * device().capacity(); size >= least; size /= 2) {
    Size const pages = round_up(size, page());
    Address const begin = reserve(pages);
    if (begin == 0) continue;
    range.open(begin, pages);
    return true;
  }
  return false;
}

// Maps the pages of a new block of this size that are not mapped. Returns false, and maps nothing,
// if there is not enough memory. Free pages of the pools are moved there if reserved bytes would
// otherwise exceed the peak load. Idle pages of the plan will soon be needed again, so they are
// moved only if reserved bytes would also exceed the expected need of the step.
bool Planned::map_pages(MappedRange& range, PageUse::Run run, Size size) {
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
Size Planned::needed() const {
  bool const known = !place_occupied_ && !place_was_occupied_;
  return known ? profile_.height() + counted().reserved.current - plan_.mapped() : 0;
}

// The part of the `missing` bytes that would raise reserved bytes above `most`.
Size Planned::excess(Size most, Size missing) const {
  Size const reserved = counted().reserved.current + missing;
  return reserved <= most ? 0 : round_up(std::min(missing, reserved - most), page());
}

bool Planned::map_run(MappedRange& range, PageUse::Run run) {
  if (!map(range.begin(run), range.bytes(run), range.page())) return false;
  range.pages.set_mapped(run, true);
  return true;
}

// Unmaps idle pages, first of the plan and then of the small blocks.
void Planned::do_give_up(Size most) {
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

void Planned::do_trim() {
  trim_pools();
  do_give_up(plan_.mapped() + small_.mapped());
}

std::vector<Segment> Planned::do_snapshot() const {
  auto segments = blocks().snapshot();
  std::ranges::move(plan_.snapshot(), std::back_inserter(segments));
  std::ranges::move(small_.snapshot(), std::back_inserter(segments));
  return segments;
}

Size Planned::do_largest_free() const {
  return std::max({blocks().largest_free(), plan_.largest_free(), small_.largest_free()});
}

void Planned::do_check() const {
  blocks().check();
  plan_.check_pages();
  small_.check();
}

Counters Planned::do_counters() const {
  Counters counters = stitching_counters();
  counters.insert(counters.end(), {{"planned_requests", planned_.requests},
                                   {"planned_bytes", planned_.bytes},
                                   {"fallback_requests", fallback_.requests},
                                   {"fallback_bytes", fallback_.bytes},
                                   {"plans", profile_.plans()}});
  return counters;
}

}  // namespace allocbench

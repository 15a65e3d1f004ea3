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
#include <vector>

#include "parts/stitching.hpp"
#include "strategies/planned/mapped_range.hpp"
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

  Planned(Device& device, Options const& given);
  StrategyInfo const& info() const override { return strategy; }

 private:
  struct Served {
    std::uint64_t requests = 0;
    Size bytes = 0;
    void count(Size requested) {
      ++requests;
      bytes += requested;
    }
  };

 protected:
  Block do_allocate(Size requested, Stream stream) override;
  Block do_deallocate(Address address, Stream stream) override;
  void do_trim() override;
  void do_step() override { marked_ = mark_ = true; }
  std::vector<Segment> do_snapshot() const override;
  Size do_largest_free() const override;
  void do_check() const override;
  Counters do_counters() const override;
  Size do_spare() const override { return plan_.idle() + small_.idle(); }
  void do_give_up(Size most) override;
  void do_streams_done() override { small_.streams_done(); }

 private:
  bool begins_step(Size requested);
  Block from_plan(Size offset, Size size, Size requested, Profile::Ticket ticket);
  Block from_chunks(Size size, Size requested, Stream stream);
  bool open(MappedRange& range, Size least);
  bool map_pages(MappedRange& range, PageUse::Run run, Size size);
  Size needed() const;
  Size excess(Size most, Size missing) const;
  bool map_run(MappedRange& range, PageUse::Run run);

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

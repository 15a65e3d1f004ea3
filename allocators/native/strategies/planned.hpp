// strategies/planned.hpp: steps served from a plan of earlier steps, on pages of virtual memory.
// SPDX-License-Identifier: Apache-2.0
//
// A program that runs in steps asks for nearly the same blocks in each. From the steps seen, of
// this run or of an earlier one (option `plan`), a profile knows what a step asks for and when each
// block dies, and every block that does not outlive the next step has a planned place in one range
// of addresses, the plan's. A request takes its place if it is no larger than what was planned and
// the place is free; any other is served from pools of best fit with coalescing, as all are until
// a step is known, and where its large sizes follow no rule. Steps begin with the marks of a trace
// or, without any, where the sequence of sizes is found to repeat itself.
//
// Addresses are reserved, and memory is mapped to them page by page where blocks come to lie. A
// page that no block touches is unmapped when another is wanted, before the device is asked for
// more: so a step that differs from the plan costs calls of the device, but no memory beside the
// pages that are only partly used.
// A planned request or free takes O(1) steps, and one for each 64 pages; every other, those of best
// fit.
//
// Bad at: programs that never repeat themselves; each of their pages moves again and again.
#pragma once

#include <cstdint>
#include <vector>

#include "parts/stitching.hpp"
#include "strategies/planned/profile.hpp"
#include "strategies/planned/space.hpp"
#include "strategies/planned/step_finder.hpp"

namespace allocbench {

class Planned final : public Stitching {
 public:
  static constexpr Option options[] = {
      {"plan", OptionType::kText, "",
       "file that `allocbench plan -o` wrote for an earlier run; default: learn from this run"},
      {"page", OptionType::kBytes, "2MiB",
       "bytes mapped or unmapped at a time, a multiple of the device's granularity"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "planned",
      .summary = "places blocks by a plan that it learns from earlier steps, on mapped pages",
      .worst_case = "outside: almost one page per block, if the program never repeats itself",
      .reference = "own design; after STAlloc (arXiv 2507.16274) and GMLake (ASPLOS 2024)",
      .options = options,
      .largest_request = [](Size capacity) { return round_down(capacity, 2 * kMiB); },
      .exemption = "memory is mapped in pages of 2 MiB",
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

  Block do_allocate(Size requested, Stream stream) override;
  Block do_deallocate(Address address, Stream stream) override;
  void do_trim() override;
  void do_step() override { marked_ = mark_ = true; }
  std::vector<Segment> do_snapshot() const override;
  Size do_largest_free() const override;
  void do_check() const override;
  Counters do_counters() const override;
  Size do_spare() const override { return plan_.pages.idle() * page(); }
  void do_give_up(Size most) override;

  bool begins_step(Size requested);
  Block from_plan(Size offset, Size size, Size requested, Profile::Ticket ticket);
  bool reserve_plan(Size least);
  bool furnish(Block const& block);
  Size needed() const;
  Size excess(Size most, Size missing) const;
  bool map_run(Pages::Run run);

  Profile profile_;
  StepFinder finder_;
  bool marked_ = false;                         // steps are marked, and need not be found
  bool mark_ = false;                           // a step begins with the next request
  bool crossed_ = false, was_crossed_ = false;  // a place was taken in this step, in the last

  Space<Profile::Ticket> plan_;           // where planned blocks lie
  std::vector<Profile::Ticket> tickets_;  // of the blocks in pools, by their index
  Served planned_, fallback_;
};

}  // namespace allocbench

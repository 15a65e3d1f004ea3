// planners/fast_planners.hpp: places each block once: as time passes, or by size, lifetime or load.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "planners/planners.hpp"

namespace allocbench {

// Throws SpecError unless `alignment` is a power of two of at most 2 MiB, the alignment of a
// device's segments.
void check_alignment(Size alignment);

// TFLite's rule: a block takes the smallest gap between placed blocks that is large enough (the
// lowest among equals) or, if there is none, the end of the highest block. Offsets are aligned;
// sizes are not rounded. The size of a gap is the distance between its blocks, before alignment.
class Gaps {
 public:
  // O(log n) time for n placed blocks, and more if gaps are large enough only before alignment.
  // `size` must be at least 1 and `alignment` a power of two. Throws OutOfMemory for a block that
  // would end beyond 2^62 bytes.
  Size place(Size size, Size alignment);
  // The same, but always at the aligned end of the highest block so far. O(log n) time.
  Size place_on_top(Size size, Size alignment);
  // Throws BadFree unless a block of `size` bytes is placed at `offset`.
  void remove(Size offset, Size size);

  Size high_water_mark() const { return high_water_mark_; }

 private:
  using Blocks = std::map<Size, Size>;  // offset -> end

  static Size end_below(Blocks const& blocks, Blocks::const_iterator block) {
    return block == blocks.begin() ? 0 : std::prev(block)->second;
  }
  Size insert(Blocks::const_iterator above, Size offset, Size size);
  void add_gap(Size begin, Size end);
  void remove_gap(Size begin, Size end);

  Blocks placed_;
  std::set<std::pair<Size, Size>> gaps_;  // below a block: size and begin
  Size high_water_mark_ = 0;
};

// TFLite's planner of 2018: passes through the program once and places each block when it becomes
// alive (Gaps). At each instant, ending blocks are removed before new blocks are placed. Blocks
// that begin together are placed in the order given. O(n log n) time. Throws SpecError
// unless the alignment is a power of two of at most 2 MiB.
// Once `stop` returns true, the remaining blocks go on top of all others, without reuse, so there
// always is a plan.
std::optional<Plan> plan_in_execution_order(std::span<Lifetime const> lifetimes, Size alignment,
                                            Stop const& stop);

constexpr std::size_t kStacks = 5;  // of plan_from_peak

// The blocks alive at the highest load are stacked without gaps. Those that begin later are then
// placed in the order of their begin, and those that end earlier in the reverse order of their end,
// as plan_in_execution_order places blocks (Gaps). So the plan wastes nothing where the load is
// highest, and the further away from there, the more the load usually leaves to be wasted.
// There are kStacks orders of the stack, such as the last to end at the bottom.
// O(n log n) time. Throws SpecError unless the alignment is a power of two of at most 2 MiB.
// Empty if `stop`, which is called periodically, returns true.
std::optional<Plan> plan_from_peak(std::span<Lifetime const> lifetimes, Size alignment,
                                   std::size_t stack, Stop const& stop);

// Each of the following plans is empty if `stop`, which is called periodically, returns true.

// The baseline of memory planning, as in Caffe: blocks are stacked in the order given, even if
// their lifetimes do not overlap. O(n) time.
std::optional<Plan> plan_no_reuse(std::span<Lifetime const> lifetimes, Size alignment,
                                  Stop const& stop);

// XLA's decreasing-size best fit. Blocks are sorted by size (largest first), then by lifetime
// (longest first), then in the order given. Each block takes the smallest gap that is large enough
// between the placed blocks whose lifetimes overlap its own (the lowest among equals) or, if there
// is none, the aligned end of the highest one. A gap extends from its aligned start to the block
// above. O(n^2) time. Source: GlobalDecreasingSizeBestFitHeap (spatial order, no colocated
// buffers) in XLA's heap_simulator.cc.
std::optional<Plan> plan_best_fit(std::span<Lifetime const> lifetimes, Size alignment,
                                  Stop const& stop);

// TFLite's current planner. Blocks that are always alive (from instant 0, never freed) come first,
// in the order given. The others follow by size (largest first), then by begin (earliest first),
// then in reverse of the order given. Each block takes the gap that leaves the fewest bytes between
// the placed blocks whose lifetimes overlap its own (the lowest among equals) or, if no gap is
// large enough, the aligned end of the highest one. As in TFLite, a gap is measured from its
// aligned start when it is compared with the best gap so far, but from its unaligned start once it
// is the best. Offsets are aligned; sizes are not rounded. O(n^2) time. Source: SimpleMemoryArena
// and ArenaPlanner of TensorFlow Lite; Pisarchyk and Lee, "Efficient Memory Management for Deep
// Neural Net Inference" (arXiv 2001.03288).
std::optional<Plan> plan_greedy_by_size(std::span<Lifetime const> lifetimes, Size alignment,
                                        Stop const& stop);

// Each attempt uses another order: by the size of the block, its lifetime, or a product of both,
// largest first. In some orders, blocks that are alive where the load is highest come first, as in
// the planner GreedyByBreadth of TensorFlow Lite (Pisarchyk and Lee, "Efficient Memory Management
// for Deep Neural Net Inference", 2020). Later attempts perturb the keys at random. A block takes
// the lowest gap that is large enough between the placed blocks whose lifetimes overlap its own.
// O(n^2) time.
std::optional<Plan> plan_reordered(std::span<Lifetime const> lifetimes, Size alignment,
                                   std::uint64_t attempt, Stop const& stop);

}  // namespace allocbench

// planners/time_order.hpp: places and removes blocks as time passes, by best fit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/types.hpp"
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

}  // namespace allocbench

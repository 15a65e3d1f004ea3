// planners/placed_blocks.hpp: the blocks that a planner has placed, by offset.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "planners/plan.hpp"

namespace allocbench {

// For planners that place blocks in another order than that of time: a block only has to keep
// clear of those alive at some instant of its own lifetime. O(n) steps for each call, over an
// array that lies together.
class PlacedBlocks {
 public:
  void add(Lifetime const& block, Size offset) {
    auto const above = std::ranges::upper_bound(placed_, offset, {}, &Placed::offset);
    placed_.insert(above, {offset, offset + block.size, block.first, block.last});
    height_ = std::max(height_, offset + block.size);
  }

  // Calls `visit` with the offset and the end of each block alive together with `block`, lowest
  // offset first.
  template <class Visit>
  void alive_with(Lifetime const& block, Visit visit) const {
    for (Placed const& placed : placed_)
      if (placed.first < block.last && block.first < placed.last) visit(placed.offset, placed.end);
  }

  Size height() const { return height_; }

 private:
  struct Placed {
    Size offset, end;
    std::uint32_t first, last;
  };
  std::vector<Placed> placed_;
  Size height_ = 0;
};

}  // namespace allocbench

// planners/placed_blocks.hpp: the blocks that a planner has placed, by offset.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <vector>

#include "planners/plan.hpp"

namespace allocbench {

// For planners that place blocks in another order than that of time: a block only has to keep
// clear of those alive at some instant of its own lifetime. Time is cut into slices. A short block
// keeps to two neighbouring ones, is found in the lists of those, and looks only there and among
// the long blocks; a long block looks at all. So a call takes O(n) steps, but few where most blocks
// are short. All lists are in order of offset.
class PlacedBlocks {
 public:
  // `blocks` are all that are to be placed.
  explicit PlacedBlocks(std::span<Lifetime const> blocks) {
    std::uint32_t first = kForever, last = 0;
    for (Lifetime const& block : blocks) {
      first = std::min(first, block.first);
      last = std::max(last, block.last == kForever ? block.first : block.last);
    }
    begin_ = first;
    width_ = first < last ? (last - first) / kSlices + 1 : 1;
    slices_.resize(kSlices + 1);
  }

  void add(Lifetime const& block, Size offset) {
    Placed const placed{offset, offset + block.size, block.first, block.last};
    insert(all_, placed);
    if (is_short(block)) {
      insert(slices_[slice(block.first)], placed);
      if (slice(block.last - 1) != slice(block.first))
        insert(slices_[slice(block.last - 1)], placed);
    } else {
      insert(long_, placed);
    }
    height_ = std::max(height_, offset + block.size);
  }

  // Calls `visit` with the offset and the end of each block alive together with `block`, lowest
  // offset first.
  template <class Visit>
  void alive_with(Lifetime const& block, Visit visit) const {
    if (is_short(block)) return alive_with_short(block, visit);
    for (Placed const& placed : all_)
      if (meet(placed, block)) visit(placed.offset, placed.end);
  }

  // The same for a block with two lifetimes.
  template <class Visit>
  void alive_with(Lifetime const& one, Lifetime const& other, Visit visit) const {
    for (Placed const& placed : all_)
      if (meet(placed, one) || meet(placed, other)) visit(placed.offset, placed.end);
  }

  Size height() const { return height_; }

 private:
  static constexpr std::uint32_t kSlices = 128;

  struct Placed {
    Size offset, end;
    std::uint32_t first, last;
  };
  using List = std::vector<Placed>;
  struct Cursor {
    Placed const* at;
    Placed const* end;
  };

  static bool meet(Placed const& placed, Lifetime const& block) {
    return placed.first < block.last && block.first < placed.last;
  }
  static void insert(List& list, Placed const& placed) {
    list.insert(std::ranges::upper_bound(list, placed.offset, {}, &Placed::offset), placed);
  }
  std::uint32_t slice(std::uint32_t instant) const { return (instant - begin_) / width_; }
  bool is_short(Lifetime const& block) const {
    return block.last != kForever && slice(block.last - 1) - slice(block.first) <= 1;
  }

  // The lists are merged. A block that is in both slices is taken from the earlier one's list.
  template <class Visit>
  void alive_with_short(Lifetime const& block, Visit visit) const {
    std::uint32_t const early = slice(block.first), late = slice(block.last - 1);
    List const& second = early == late ? none_ : slices_[late];
    auto const skip = [&](Cursor& cursor, bool is_second) {
      while (cursor.at != cursor.end &&
             (!meet(*cursor.at, block) || (is_second && slice(cursor.at->first) <= early)))
        ++cursor.at;
    };
    std::array<Cursor, 3> cursors = {over(long_), over(slices_[early]), over(second)};
    for (;;) {
      Cursor* lowest = nullptr;
      for (Cursor& cursor : cursors) {
        skip(cursor, &cursor == &cursors[2]);
        if (cursor.at != cursor.end &&
            (lowest == nullptr || cursor.at->offset < lowest->at->offset))
          lowest = &cursor;
      }
      if (lowest == nullptr) return;
      visit(lowest->at->offset, lowest->at->end);
      ++lowest->at;
    }
  }
  static Cursor over(List const& list) { return {list.data(), list.data() + list.size()}; }

  std::uint32_t begin_, width_;
  List all_, long_, none_;
  std::vector<List> slices_;
  Size height_ = 0;
};

}  // namespace allocbench

// planners/placed_blocks.hpp: the blocks placed so far by a planner, by offset.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <vector>

#include "planners/offset_order.hpp"
#include "planners/plan.hpp"

namespace allocbench {

// For planners that do not place blocks in time order. A block must avoid only the placed blocks
// whose lifetimes overlap its own. Time is divided into slices. A short block spans at most two
// neighboring slices and is stored in their lists. A query for it visits only these lists and the
// long blocks; a query for a long block visits all blocks. A call takes O(n) time, but little if
// most blocks are short. All lists are in offset order.
class PlacedBlocks {
 public:
  // `blocks`: all the blocks to be placed.
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
    all_.insert(offset, block.first, block.last, placed.end);
    if (is_short(block)) {
      insert(slices_[slice(block.first)], placed);
      if (slice(block.last - 1) != slice(block.first))
        insert(slices_[slice(block.last - 1)], placed);
    } else {
      insert(long_, placed);
    }
    height_ = std::max(height_, offset + block.size);
  }

  // Calls `visit` with the offset and end of each placed block whose lifetime overlaps that of
  // `block`, in offset order.
  template <class Visit>
  void alive_with(Lifetime const& block, Visit visit) const {
    if (is_short(block)) return alive_with_short(block, visit);
    all_.visit_if([&](auto first, auto last) { return overlap(first, last, block); }, visit);
  }

  // The same for a block with two lifetimes.
  template <class Visit>
  void alive_with(Lifetime const& first, Lifetime const& second, Visit visit) const {
    all_.visit_if(
        [&](auto begin, auto end) {
          return overlap(begin, end, first) | overlap(begin, end, second);
        },
        visit);
  }

  Size height() const { return height_; }

 private:
  static constexpr std::uint32_t kSlices = 128;

  struct Placed {
    Size offset, end;
    std::uint32_t first, last;
  };
  using List = std::vector<Placed>;
  struct Range {
    Size offset, end;
  };
  static constexpr Size kNoOffset = std::numeric_limits<Size>::max();

  static bool overlap(std::uint32_t first, std::uint32_t last, Lifetime const& block) {
    return (first < block.last) & (block.first < last);
  }
  static void insert(List& list, Placed const& placed) {
    list.insert(std::ranges::upper_bound(list, placed.offset, {}, &Placed::offset), placed);
  }
  std::uint32_t slice(std::uint32_t instant) const { return (instant - begin_) / width_; }
  bool is_short(Lifetime const& block) const {
    return block.last != kForever && slice(block.last - 1) - slice(block.first) <= 1;
  }

  // Copies the ranges of the blocks of a list that begin at `first` or later and are alive with
  // `block` to `to`, without branches that could not be predicted, then a mark of the end. Returns
  // the position after the mark.
  static Range* collect(List const& list, Lifetime const& block, std::uint32_t first, Range* to) {
    for (Placed const& placed : list) {
      *to = {placed.offset, placed.end};
      to += overlap(placed.first, placed.last, block) & (placed.first >= first);
    }
    *to = {kNoOffset, kNoOffset};
    return to + 1;
  }

  // Merges the lists. A block in both slices is taken from the list of the earlier one.
  template <class Visit>
  void alive_with_short(Lifetime const& block, Visit visit) const {
    std::uint32_t const early = slice(block.first), late = slice(block.last - 1);
    List const& second = early == late ? none_ : slices_[late];
    ranges_.resize(long_.size() + slices_[early].size() + second.size() + 3);
    std::array<Range*, 3> next = {ranges_.data()};
    next[1] = collect(long_, block, 0, next[0]);
    next[2] = collect(slices_[early], block, 0, next[1]);
    collect(second, block, begin_ + (early + 1) * width_, next[2]);
    for (;;) {
      Range*& lowest =
          *std::ranges::min_element(next, {}, [](Range const* r) { return r->offset; });
      if (lowest->offset == kNoOffset) return;
      visit(lowest->offset, lowest->end);
      ++lowest;
    }
  }

  std::uint32_t begin_, width_;
  OffsetOrder all_;
  List long_, none_;
  std::vector<List> slices_;
  mutable std::vector<Range> ranges_;  // of one query
  Size height_ = 0;
};

}  // namespace allocbench

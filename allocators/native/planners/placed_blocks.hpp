// planners/placed_blocks.hpp: the blocks placed so far by a planner, by offset.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "planners/occupied.hpp"
#include "planners/offset_order.hpp"
#include "planners/plan.hpp"

namespace allocbench {

// For planners that do not place blocks in time order. A block must avoid only the placed blocks
// whose lifetimes overlap its own. Time is divided into slices. Such a placed block begins in the
// slice in which the block to place ends, or ends in that in which it begins, or is one of those
// whose ranges Occupied has joined. A call takes O(n) time, but the first two kinds are few, and
// where little memory is free, so are the ranges of the third.
class PlacedBlocks {
 public:
  // `blocks`: all the blocks to be placed.
  explicit PlacedBlocks(std::span<Lifetime const> blocks)
      : few_(blocks.size() < kFewBlocks),
        slices_(std::clamp(static_cast<std::uint32_t>(std::sqrt(blocks.size())) / kRootPerSlice,
                           kFewest, kMost)),
        occupied_(slices_),
        beginning_(slices_),
        ending_(slices_) {
    std::uint32_t first = kForever, last = 0;
    for (Lifetime const& block : blocks) {
      first = std::min(first, block.first);
      last = std::max(last, block.last == kForever ? block.first : block.last);
    }
    begin_ = first;
    width_ = first < last ? (last - first) / (slices_ - 1) + 1 : 1;
  }

  void add(Lifetime const& block, Size offset) {
    Size const end = offset + block.size;
    added_.push_back({{offset, end}, block.first, block.last});
    height_ = std::max(height_, end);
    if (few_) return;
    std::uint32_t const early = slice(block.first), late = last_slice(block.last);
    beginning_[early].insert(offset, block.first, block.last, end);
    ending_[late].insert(offset, block.first, block.last, end);
    occupied_.add({offset, end}, early, late);
    ++count_;
  }

  // Calls `visit` with the offset and end of each gap of at least `block.size` bytes between the
  // placed blocks whose lifetimes overlap that of `block`, in order. The last gap, above all of
  // them, ends at kNoOffset.
  template <class Visit>
  void gaps(Lifetime const& block, Visit visit) const {
    auto const matches = [&](auto first, auto last) { return overlap(first, last, block); };
    if (count_ < kFewBlocks) return gaps_among_all(block.size, matches, visit);
    std::uint32_t const early = slice(block.first), late = last_slice(block.last);
    auto const [left, right] = occupied_.between(early, late);
    Joined joined{{left}, {right}};
    Joined others{{collect(ending_[early], matches, ranges_[0])},
                  {collect(beginning_[late], matches, ranges_[1])}};
    for (Size begin = 0; begin < kNoOffset;) {
      begin = joined.end_from(begin);
      Size const end = joined.next();
      for (Size free = begin; end - begin >= block.size;) {
        free = others.end_from(free);
        if (free >= end) break;
        Size const next = std::min(end, others.next());
        if (next - free >= block.size) visit(free, next);
        if (next == end) break;
        free = next;
      }
      begin = end;
    }
  }

  // The same for a block with two lifetimes.
  template <class Visit>
  void gaps(Lifetime const& first, Lifetime const& second, Visit visit) const {
    gaps_among_all(
        first.size,
        [&](auto begin, auto end) {
          return overlap(begin, end, first) | overlap(begin, end, second);
        },
        visit);
  }

  Size height() const { return height_; }

 private:
  static constexpr std::uint32_t kFewest = 8, kMost = 128;  // slices
  static constexpr std::uint32_t kRootPerSlice = 3;         // of the number of blocks
  static constexpr std::size_t kFewBlocks = 1024;           // are visited one by one

  using Ranges = std::vector<OccupiedRange>;

  struct Added {
    OccupiedRange range;
    std::uint32_t first, last;
  };
  // A list of ranges in offset order.
  struct Cursor {
    OccupiedRange const* next;
    Size end = 0;  // the highest end of the ranges before it

    void pass(Size offset) {
      for (; next->offset <= offset; ++next) end = std::max(end, next->end);
    }
  };
  // Two such lists as one.
  struct Joined {
    Cursor a, b;

    // The end of what is occupied without a gap from `offset` on. Offsets must not decrease from
    // one call to the next.
    Size end_from(Size offset) {
      for (;;) {
        a.pass(offset);
        b.pass(offset);
        Size const end = std::max(a.end, b.end);
        if (end <= offset) return offset;
        offset = end;
      }
    }
    Size next() const { return std::min(a.next->offset, b.next->offset); }
  };

  static bool overlap(std::uint32_t first, std::uint32_t last, Lifetime const& block) {
    return (first < block.last) & (block.first < last);
  }
  std::uint32_t slice(std::uint32_t instant) const { return (instant - begin_) / width_; }
  std::uint32_t last_slice(std::uint32_t last) const {
    return last == kForever ? slices_ - 1 : slice(last - 1);
  }

  template <class Matches, class Visit>
  void gaps_among_all(Size least, Matches matches, Visit const& visit) const {
    for (auto const& [range, first, last] : added_)
      all_.insert(range.offset, first, last, range.end);
    added_.clear();
    Size begin = 0;  // the highest end so far
    all_.visit_if(matches, [&](Size offset, Size end, auto, auto) {
      if (begin + least <= offset) visit(begin, offset);
      begin = std::max(begin, end);
    });
    visit(begin, kNoOffset);
  }

  template <class Matches>
  static OccupiedRange const* collect(OffsetOrder const& blocks, Matches matches, Ranges& ranges) {
    ranges.clear();
    blocks.visit_if(matches,
                    [&](Size offset, Size end, auto, auto) { ranges.push_back({offset, end}); });
    ranges.push_back(kNoRange);
    return ranges.data();
  }

  bool few_;  // `all_` is enough
  std::uint32_t slices_, begin_, width_;
  mutable OffsetOrder all_;
  mutable std::vector<Added> added_;             // to be taken over by `all_`
  mutable Occupied occupied_;                    // takes over what was added when it is asked
  std::vector<OffsetOrder> beginning_, ending_;  // the blocks that begin or end in each slice
  mutable std::array<Ranges, 2> ranges_;         // of one call
  std::size_t count_ = 0;
  Size height_ = 0;
};

}  // namespace allocbench

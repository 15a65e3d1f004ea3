// planners/placed_blocks.hpp: the blocks placed so far by a planner, by offset.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "planners/offset_order.hpp"
#include "planners/plan.hpp"

namespace allocbench {

// For planners that do not place blocks in time order. A block must avoid only the placed blocks
// whose lifetimes overlap its own. Time is divided into slices. A short block spans at most two
// neighboring slices, and each slice has a list of the short blocks that are alive in it. A query
// for a short block reads the lists of its slices and finds the long blocks among all of them,
// unless it is not the first one in a slice since a long block was added: then the slice also keeps
// its long blocks, of which those that are alive during the whole slice are joined where they
// touch. A query for a long block reads all blocks. A call takes O(n) time, but little if most
// blocks are short. All lists are in offset order.
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
    std::size_t const slices = std::clamp(blocks.size() / 64, kFewest, kMost);
    width_ = first < last ? (last - first) / static_cast<std::uint32_t>(slices) + 1 : 1;
    slices_.resize(slices + 1);
  }

  void add(Lifetime const& block, Size offset) {
    Placed const placed{offset, offset + block.size, block.first, block.last};
    all_.insert(offset, block.first, block.last, placed.end);
    if (is_short(block.first, block.last)) {
      insert(slices_[slice(block.first)].short_blocks, placed);
      if (slice(block.last - 1) != slice(block.first))
        insert(slices_[slice(block.last - 1)].short_blocks, placed);
    } else {
      long_.insert(offset, block.first, block.last, placed.end);
      ++long_blocks_;
    }
    height_ = std::max(height_, offset + block.size);
  }

  // Calls `visit` with the offset and end of each gap of at least `block.size` bytes between the
  // placed blocks whose lifetimes overlap that of `block`, in order. The last gap, above all of
  // them, ends at kNoOffset.
  template <class Visit>
  void gaps(Lifetime const& block, Visit visit) const {
    if (is_short(block.first, block.last)) return gaps_of_short(block, visit);
    gaps_of_long(
        block.size, [&](auto first, auto last) { return overlap(first, last, block); }, visit);
  }

  // The same for a block with two lifetimes.
  template <class Visit>
  void gaps(Lifetime const& first, Lifetime const& second, Visit visit) const {
    gaps_of_long(
        first.size,
        [&](auto begin, auto end) {
          return overlap(begin, end, first) | overlap(begin, end, second);
        },
        visit);
  }

  Size height() const { return height_; }

  static constexpr Size kNoOffset = std::numeric_limits<Size>::max();

 private:
  static constexpr std::size_t kFewest = 16, kMost = 128;  // slices

  struct Placed {
    Size offset, end;
    std::uint32_t first, last;
  };
  struct Range {
    Size offset, end;
  };
  static constexpr Range kEnd = {kNoOffset, kNoOffset};  // of a list
  using List = std::vector<Placed>;
  using Ranges = std::vector<Range>;
  struct Slice {
    List short_blocks;
    Ranges whole;                 // of the long blocks that are alive during the whole slice
    List partly;                  // the other long blocks
    std::size_t asked = 0;        // number of long blocks at the last query
    std::size_t long_blocks = 0;  // number of long blocks for which `whole` and `partly` are
  };

  // Finds the gaps of at least `least` bytes between ranges that it is told about in offset order.
  template <class Visit>
  struct Gaps {
    Size least;
    Visit const& visit;
    Size begin = 0;  // the highest end so far

    void add(Size offset, Size end) {
      if (begin + least <= offset) visit(begin, offset);
      begin = std::max(begin, end);
    }
    void end() const { visit(begin, kNoOffset); }  // the last gap
  };

  static bool overlap(std::uint32_t first, std::uint32_t last, Lifetime const& block) {
    return (first < block.last) & (block.first < last);
  }
  static void insert(List& list, Placed const& placed) {
    list.insert(std::ranges::upper_bound(list, placed.offset, {}, &Placed::offset), placed);
  }
  std::uint32_t slice(std::uint32_t instant) const { return (instant - begin_) / width_; }
  bool is_short(std::uint32_t first, std::uint32_t last) const {
    return last != kForever && slice(last - 1) - slice(first) <= 1;
  }

  template <class Matches, class Visit>
  void gaps_of_long(Size least, Matches matches, Visit const& visit) const {
    Gaps gaps{least, visit};
    all_.visit_if(matches, [&](Size offset, Size end, auto, auto) { gaps.add(offset, end); });
    gaps.end();
  }

  static void join(Ranges& ranges, Size offset, Size end) {
    if (!ranges.empty() && offset <= ranges.back().end)
      ranges.back().end = std::max(ranges.back().end, end);
    else
      ranges.push_back({offset, end});
  }

  // True if the slice has its long blocks.
  bool keeps_long(std::uint32_t number) const {
    Slice& slice = slices_[number];
    if (slice.long_blocks == long_blocks_) return true;
    if (std::exchange(slice.asked, long_blocks_) != long_blocks_) return false;
    slice.long_blocks = long_blocks_;
    slice.whole.clear();
    slice.partly.clear();
    Lifetime const time{0, begin_ + number * width_, begin_ + (number + 1) * width_};
    long_.visit_if([&](auto first, auto last) { return overlap(first, last, time); },
                   [&](Size offset, Size end, std::uint32_t first, std::uint32_t last) {
                     if (first > time.first || last < time.last)
                       slice.partly.push_back({offset, end, first, last});
                     else
                       join(slice.whole, offset, end);
                   });
    slice.whole.push_back(kEnd);
    return true;
  }

  // Copies the ranges of the blocks of a list that are alive with `block`, without branches that
  // could not be predicted.
  static Range const* collect(List const& list, Lifetime const& block, Ranges& ranges) {
    ranges.resize(std::max(ranges.size(), list.size() + 1));
    Range* to = ranges.data();
    for (Placed const& placed : list) {
      *to = {placed.offset, placed.end};
      to += overlap(placed.first, placed.last, block);
    }
    *to = kEnd;
    return ranges.data();
  }

  template <class Visit>
  void gaps_of_short(Lifetime const& block, Visit const& visit) const {
    std::uint32_t const early = slice(block.first), late = slice(block.last - 1);
    std::array<Range const*, 6> next;
    std::size_t lists = 0;
    bool const kept = keeps_long(early) & keeps_long(late);
    if (!kept) {
      ranges_[0].clear();
      long_.visit_if([&](auto first, auto last) { return overlap(first, last, block); },
                     [&](Size offset, Size end, auto, auto) { join(ranges_[0], offset, end); });
      ranges_[0].push_back(kEnd);
      next[lists++] = ranges_[0].data();
    }
    for (std::uint32_t number = early; number <= late; ++number) {
      Slice const& slice = slices_[number];
      if (kept) {
        next[lists++] = slice.whole.empty() ? &kEnd : slice.whole.data();
        next[lists] = collect(slice.partly, block, ranges_[lists]);
        ++lists;
      }
      next[lists] = collect(slice.short_blocks, block, ranges_[lists]);
      ++lists;
    }
    Gaps gaps{block.size, visit};
    for (;;) {
      std::size_t lowest = 0;
      for (std::size_t list = 1; list < lists; ++list)
        if (next[list]->offset < next[lowest]->offset) lowest = list;
      if (next[lowest]->offset == kNoOffset) return gaps.end();
      gaps.add(next[lowest]->offset, next[lowest]->end);
      ++next[lowest];
    }
  }

  std::uint32_t begin_, width_;
  OffsetOrder all_, long_;
  std::size_t long_blocks_ = 0;
  mutable std::vector<Slice> slices_;
  mutable std::array<Ranges, 6> ranges_;  // of one query
  Size height_ = 0;
};

}  // namespace allocbench

// planners/placed_blocks.hpp: the blocks placed so far by a planner, and the gaps between them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "planners/planners.hpp"

namespace allocbench {

// Entries are kept in chunks of at most kChunk, field by field, so that a query compares the
// lifetimes of all entries without a branch, and an insertion moves the entries of one chunk only.
class OffsetOrder {
 public:
  void clear() { chunks_.clear(); }

  // `value`: anything that is to be visited with the entry.
  void insert(Size key, std::uint32_t first, std::uint32_t last, Size value) {
    if (chunks_.empty()) chunks_.emplace_back();
    std::size_t at = chunk_of(key);
    if (chunks_[at].count == kChunk) {
      split(at);
      at += chunks_[at + 1].keys[0] <= key;
    }
    chunks_[at].insert(key, first, last, value);
  }

  // Removes an entry that was inserted with this key and value.
  void erase(Size key, Size value) {
    for (std::size_t at = chunk_of(key);; --at) {  // equal keys may begin in an earlier chunk
      if (!chunks_[at].erase(key, value)) continue;
      if (chunks_[at].count == 0) chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(at));
      return;
    }
  }

  // Calls `visit` with the key, value and lifetime of each entry for whose lifetime
  // `matches(first, last)`, which should not branch, is true, in the order of the keys.
  template <class Matches, class Visit>
  void visit_if(Matches matches, Visit visit) const {
    static_assert(std::endian::native == std::endian::little);
    std::array<std::uint8_t, kChunk> match;
    for (Chunk const& chunk : chunks_) {
      std::size_t const count = (chunk.count + kAtOnce - 1) / kAtOnce * kAtOnce;
      for (std::size_t i = 0; i < count; ++i)
        match[i] = matches(chunk.firsts[i], chunk.lasts[i]) ? 1 : 0;
      for (std::size_t i = chunk.count; i < count; ++i) match[i] = 0;
      for (std::size_t first = 0; first < count; first += sizeof(std::uint64_t)) {
        std::uint64_t marks;  // a byte for each entry
        std::memcpy(&marks, &match[first], sizeof marks);
        for (; marks != 0; marks &= marks - 1) {
          std::size_t const i = first + static_cast<std::size_t>(std::countr_zero(marks)) / 8;
          visit(chunk.keys[i], chunk.values[i], chunk.firsts[i], chunk.lasts[i]);
        }
      }
    }
  }

 private:
  static constexpr std::size_t kChunk = 256;
  static constexpr std::size_t kAtOnce = 16;  // entries that are compared together

  struct Chunk {
    std::size_t count = 0;
    std::array<Size, kChunk> keys = {};  // in ascending order
    std::array<Size, kChunk> values = {};
    std::array<std::uint32_t, kChunk> firsts = {}, lasts = {};

    void insert(Size key, std::uint32_t first, std::uint32_t last, Size value) {
      auto const at = std::upper_bound(keys.begin(), keys.begin() + count, key) - keys.begin();
      for_each_array([&](auto& array) {
        std::copy_backward(array.begin() + at, array.begin() + count, array.begin() + count + 1);
      });
      keys[at] = key;
      values[at] = value;
      firsts[at] = first;
      lasts[at] = last;
      ++count;
    }
    bool erase(Size key, Size value) {
      auto const equal = std::equal_range(keys.begin(), keys.begin() + count, key);
      for (auto at = equal.first - keys.begin(); at < equal.second - keys.begin(); ++at) {
        if (values[at] != value) continue;
        for_each_array([&](auto& array) {
          std::copy(array.begin() + at + 1, array.begin() + count, array.begin() + at);
        });
        --count;
        return true;
      }
      return false;
    }
    template <class Call>
    void for_each_array(Call call) {
      call(keys), call(values), call(firsts), call(lasts);
    }
  };

  // The last chunk that begins at or below the key, or the first one.
  std::size_t chunk_of(Size key) const {
    auto const above = std::ranges::upper_bound(chunks_, key, {},
                                                [](Chunk const& chunk) { return chunk.keys[0]; });
    return above == chunks_.begin() ? 0 : static_cast<std::size_t>(above - chunks_.begin()) - 1;
  }

  void split(std::size_t at) {
    auto const place = chunks_.begin() + static_cast<std::ptrdiff_t>(at);
    auto const upper = chunks_.insert(place + 1, *place);
    upper->for_each_array(
        [](auto& array) { std::copy(array.begin() + kChunk / 2, array.end(), array.begin()); });
    std::prev(upper)->count = kChunk / 2;
    upper->count = kChunk - kChunk / 2;
  }

  std::vector<Chunk> chunks_;
};

struct OccupiedRange {
  Size offset, end;
};

// Lists of ranges in offset order end with one at this offset.
constexpr Size kNoOffset = std::numeric_limits<Size>::max();
constexpr OccupiedRange kNoRange = {kNoOffset, kNoOffset};

// Time is divided into slices. The ranges of the blocks that are alive during some slices are
// joined where they touch: much fewer ranges than blocks, where most memory is occupied. Such lists
// are kept for many spans of slices, so that any span consists of two of them: one ends and one
// begins at a multiple of a power of two. A list takes over the blocks that were added since its
// last use.
class Occupied {
 public:
  explicit Occupied(std::uint32_t slices) : slices_(std::bit_ceil(slices)) {
    short_spans_.resize(std::size_t{2} * slices_);
    spans_.resize(static_cast<std::size_t>(std::bit_width(slices_)) * slices_);
  }

  // `first` and `last`: the slices in which the block begins and ends.
  void add(OccupiedRange range, std::uint32_t first, std::uint32_t last) {
    ranges_.push_back(range);
    firsts_.push_back(static_cast<std::uint8_t>(first));
    lasts_.push_back(static_cast<std::uint8_t>(last));
  }

  // Two lists, valid until the next call: the ranges of all blocks that begin before slice `late`
  // and end after slice `early`. So they are alive together with any block that begins in slice
  // `early` and ends in slice `late`.
  std::array<OccupiedRange const*, 2> between(std::uint32_t early, std::uint32_t late) {
    if (late < early + 2)
      return {updated(short_spans_[2 * early + (late - early)], static_cast<std::uint8_t>(late),
                      static_cast<std::uint8_t>(early)),
              &kNoRange};
    std::uint32_t const first = early + 1, last = late - 1;  // the slices between them
    if (first == last) return {of_level(0, first), &kNoRange};
    auto const level = static_cast<std::uint32_t>(std::bit_width(first ^ last)) - 1;
    return {of_level(level, first), of_level(level, last)};
  }

 private:
  static constexpr std::size_t kAtOnce = 16;  // blocks that are compared together

  struct Span {
    std::vector<OccupiedRange> ranges;
    std::size_t added = 0;  // number of blocks that it has taken over
  };

  // From the slice to the next multiple of 2^level, or to the slice from the last one, if that is
  // an odd multiple.
  OccupiedRange const* of_level(std::uint32_t level, std::uint32_t slice) {
    std::uint32_t const rest = (1u << level) - 1;
    bool const odd = slice >> level & 1;
    std::uint32_t const first = odd ? slice & ~rest : slice, last = odd ? slice : slice | rest;
    return updated(spans_[level * slices_ + slice], static_cast<std::uint8_t>(last + 1),
                   static_cast<std::uint8_t>(first - 1));
  }

  // Takes over the new blocks that begin before slice `before` and end after slice `after`.
  OccupiedRange const* updated(Span& span, std::uint8_t before, std::uint8_t after) {
    new_.resize(ranges_.size() - span.added + 1);
    std::size_t count = 0, begin = std::exchange(span.added, ranges_.size());
    auto const matches = [&](std::size_t i) {
      return bool(int{firsts_[i] < before} & int{lasts_[i] > after});  // without a branch
    };
    for (std::size_t end = begin; begin < ranges_.size(); begin = end) {
      end = std::min(begin + kAtOnce, ranges_.size());
      if (end - begin == kAtOnce) {
        bool any = false;
        for (std::size_t i = begin; i < begin + kAtOnce; ++i) any |= matches(i);
        if (!any) continue;
      }
      for (std::size_t i = begin; i < end; ++i) {
        new_[count] = ranges_[i];
        count += matches(i);  // a branch would be hard to predict
      }
    }
    new_.resize(count);
    if (count > 0) join_new(span.ranges);
    return span.ranges.empty() ? &kNoRange : span.ranges.data();
  }

  void join_new(std::vector<OccupiedRange>& ranges) {
    std::ranges::sort(new_, {}, &OccupiedRange::offset);
    if (ranges.empty()) new_.push_back(kNoRange);
    joined_.resize(ranges.size() + new_.size() + 1);
    OccupiedRange* last = &joined_[0];
    *last = {0, 0};
    auto const join = [&](OccupiedRange range) {
      if (range.offset <= last->end)
        last->end = std::max(last->end, range.end);
      else
        *++last = range;
    };
    auto old = ranges.begin();
    for (OccupiedRange const range : new_) {
      for (; old != ranges.end() && old->offset < range.offset; ++old) join(*old);
      join(range);
    }
    for (; old != ranges.end(); ++old) join(*old);
    joined_.resize(static_cast<std::size_t>(last - &joined_[0]) + 1);
    std::swap(ranges, joined_);
  }

  std::uint32_t slices_;               // a power of two
  std::vector<OccupiedRange> ranges_;  // of the blocks, as they were added
  std::vector<std::uint8_t> firsts_, lasts_;
  std::vector<Span> short_spans_;            // of blocks that begin and end in one slice or in two
  std::vector<Span> spans_;                  // by level and slice
  std::vector<OccupiedRange> new_, joined_;  // of one call
};

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
          return bool(int{overlap(begin, end, first)} | int{overlap(begin, end, second)});
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

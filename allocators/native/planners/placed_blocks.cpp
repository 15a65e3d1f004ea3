// planners/placed_blocks.cpp: the ranges that placed blocks occupy during parts of the time.
// SPDX-License-Identifier: Apache-2.0
#include "planners/placed_blocks.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace allocbench {
namespace {

constexpr std::size_t kAtOnce = 16;  // blocks that are compared together

}  // namespace

Occupied::Occupied(std::uint32_t slices) : slices_(std::bit_ceil(slices)) {
  short_spans_.resize(std::size_t{2} * slices_);
  spans_.resize(static_cast<std::size_t>(std::bit_width(slices_)) * slices_);
}

void Occupied::add(OccupiedRange range, std::uint32_t first, std::uint32_t last) {
  ranges_.push_back(range);
  firsts_.push_back(static_cast<std::uint8_t>(first));
  lasts_.push_back(static_cast<std::uint8_t>(last));
}

std::array<OccupiedRange const*, 2> Occupied::between(std::uint32_t early, std::uint32_t late) {
  if (late < early + 2)
    return {updated(short_spans_[2 * early + (late - early)], static_cast<std::uint8_t>(late),
                    static_cast<std::uint8_t>(early)),
            &kNoRange};
  std::uint32_t const first = early + 1, last = late - 1;  // the slices between them
  if (first == last) return {of_level(0, first), &kNoRange};
  auto const level = static_cast<std::uint32_t>(std::bit_width(first ^ last)) - 1;
  return {of_level(level, first), of_level(level, last)};
}

// From the slice to the next multiple of 2^level, or to the slice from the last one, if that is
// an odd multiple.
OccupiedRange const* Occupied::of_level(std::uint32_t level, std::uint32_t slice) {
  std::uint32_t const rest = (1u << level) - 1;
  bool const odd = slice >> level & 1;
  std::uint32_t const first = odd ? slice & ~rest : slice, last = odd ? slice : slice | rest;
  return updated(spans_[level * slices_ + slice], static_cast<std::uint8_t>(last + 1),
                 static_cast<std::uint8_t>(first - 1));
}

// Takes over the new blocks that begin before slice `before` and end after slice `after`.
OccupiedRange const* Occupied::updated(Span& span, std::uint8_t before, std::uint8_t after) {
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

void Occupied::join_new(std::vector<OccupiedRange>& ranges) {
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

}  // namespace allocbench

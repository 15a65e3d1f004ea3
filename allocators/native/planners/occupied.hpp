// planners/occupied.hpp: the ranges that placed blocks occupy during parts of the time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "planners/plan.hpp"

namespace allocbench {

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
  explicit Occupied(std::uint32_t slices);

  // `first` and `last`: the slices in which the block begins and ends.
  void add(OccupiedRange range, std::uint32_t first, std::uint32_t last);

  // Two lists, valid until the next call: the ranges of all blocks that begin before slice `late`
  // and end after slice `early`. So they are alive together with any block that begins in slice
  // `early` and ends in slice `late`.
  std::array<OccupiedRange const*, 2> between(std::uint32_t early, std::uint32_t late);

 private:
  struct Span {
    std::vector<OccupiedRange> ranges;
    std::size_t added = 0;  // number of blocks that it has taken over
  };

  OccupiedRange const* of_level(std::uint32_t level, std::uint32_t slice);
  OccupiedRange const* updated(Span& span, std::uint8_t before, std::uint8_t after);
  void join_new(std::vector<OccupiedRange>& ranges);

  std::uint32_t slices_;               // a power of two
  std::vector<OccupiedRange> ranges_;  // of the blocks, as they were added
  std::vector<std::uint8_t> firsts_, lasts_;
  std::vector<Span> short_spans_;            // of blocks that begin and end in one slice or in two
  std::vector<Span> spans_;                  // by level and slice
  std::vector<OccupiedRange> new_, joined_;  // of one call
};

}  // namespace allocbench

// strategies/planned/ceiling.hpp: the highest end of any block, by ranges of time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

#include "core/types.hpp"

namespace allocbench {

// A segment tree over time: each range is half of its parent. Every call takes O(log n) time for n
// instants.
class Ceiling {
 public:
  explicit Ceiling(std::size_t instants) : leaves_(std::bit_ceil(instants)), ranges_(2 * leaves_) {}

  // The highest end of the blocks alive at any instant in [first, last).
  Size over(std::size_t first, std::size_t last) const {
    Size highest = 0;
    for_each_range(first, last,
                   [&](std::size_t i) { highest = std::max(highest, ranges_[i].any); });
    for (std::size_t i : {first, last - 1})
      for (i += leaves_; i > 0; i /= 2) highest = std::max(highest, ranges_[i].all);
    return highest;
  }

  // Adds a block with end offset `end` that is alive in [first, last).
  void raise(std::size_t first, std::size_t last, Size end) {
    for_each_range(first, last, [&](std::size_t i) {
      ranges_[i].all = std::max(ranges_[i].all, end);
      for (; i > 0 && ranges_[i].any < end; i /= 2) ranges_[i].any = end;
    });
  }

 private:
  struct Range {
    Size any = 0;  // highest end of the blocks alive at any of its instants
    Size all = 0;  // highest end of the blocks that were added for the whole range
  };

  // Visits the fewest ranges that make up these instants.
  template <class Visit>
  void for_each_range(std::size_t first, std::size_t last, Visit visit) const {
    for (first += leaves_, last += leaves_; first < last; first /= 2, last /= 2) {
      if (first % 2 != 0) visit(first++);
      if (last % 2 != 0) visit(--last);
    }
  }

  std::size_t leaves_;
  std::vector<Range> ranges_;  // range i has the halves 2 * i and 2 * i + 1
};

}  // namespace allocbench

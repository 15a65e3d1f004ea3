// strategies/planned/ceiling.hpp: how high blocks reach, by the time of their life.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

#include "core/types.hpp"

namespace allocbench {

// A tree of the ranges of time, each half of the one above. Every call takes O(log n) steps in the
// instants.
class Ceiling {
 public:
  explicit Ceiling(std::size_t instants) : leaves_(std::bit_ceil(instants)), ranges_(2 * leaves_) {}

  // The highest end of a block alive at an instant from `first` to before `last`.
  Size over(std::size_t first, std::size_t last) const {
    Size found = 0;
    for_each_range(first, last, [&](std::size_t at) { found = std::max(found, ranges_[at].most); });
    for (std::size_t at : {first, last - 1})
      for (at += leaves_; at > 0; at /= 2) found = std::max(found, ranges_[at].all);
    return found;
  }

  // A block alive then ends at `end`.
  void raise(std::size_t first, std::size_t last, Size end) {
    for_each_range(first, last, [&](std::size_t at) {
      ranges_[at].all = std::max(ranges_[at].all, end);
      for (; at > 0 && ranges_[at].most < end; at /= 2) ranges_[at].most = end;
    });
  }

 private:
  struct Range {
    Size most = 0;  // the highest end of a block alive at any of its instants
    Size all = 0;   // of one alive at all of them, that was raised as a whole
  };

  // The fewest ranges that make up these instants.
  template <class Visit>
  void for_each_range(std::size_t first, std::size_t last, Visit visit) const {
    for (first += leaves_, last += leaves_; first < last; first /= 2, last /= 2) {
      if (first % 2 != 0) visit(first++);
      if (last % 2 != 0) visit(--last);
    }
  }

  std::size_t leaves_;
  std::vector<Range> ranges_;  // range `at` has the halves 2 * at and 2 * at + 1
};

}  // namespace allocbench

// gpu/ranges.hpp: disjoint ranges of addresses, joined where they touch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iterator>
#include <map>

#include "core/types.hpp"

namespace allocbench {

// The end of each range, by its begin.
class Ranges : public std::map<Address, Address> {
 public:
  // The range must not overlap any other.
  void join(Address begin, Address end) {
    auto next = lower_bound(begin);
    if (next != this->end() && next->first == end) {
      end = next->second;
      next = erase(next);
    }
    if (next != this->begin() && std::prev(next)->second == begin) {
      std::prev(next)->second = end;
    } else {
      emplace_hint(next, begin, end);
    }
  }

  // Cuts `size` bytes off the begin of a range, or off its end. Returns their address.
  Address cut(iterator range, Size size, bool from_end = false) {
    auto const [begin, end] = *range;
    if (from_end && end - begin > size) return range->second = end - size;
    auto const next = erase(range);
    if (end - begin > size) emplace_hint(next, begin + size, end);
    return begin;
  }
};

}  // namespace allocbench

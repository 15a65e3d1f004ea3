// parts/slots.hpp: values in one array, named by their index in it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace allocbench {

using Index = std::uint32_t;
constexpr Index kNone = std::numeric_limits<Index>::max();

// Slots that were dropped are reused last in, first out. Every call takes O(1) steps, amortised.
template <class Value>
class Slots {
 public:
  Index put(Value const& value) {
    if (unused_.empty()) {
      values_.push_back(value);
      return static_cast<Index>(values_.size() - 1);
    }
    Index const at = unused_.back();
    unused_.pop_back();
    values_[at] = value;
    return at;
  }
  void drop(Index at) { unused_.push_back(at); }

  Value& operator[](Index at) { return values_[at]; }
  Value const& operator[](Index at) const { return values_[at]; }

 private:
  std::vector<Value> values_;
  std::vector<Index> unused_;
};

}  // namespace allocbench

// parts/slots.hpp: values in an array, identified by index.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace allocbench {

using Index = std::uint32_t;
constexpr Index kNone = std::numeric_limits<Index>::max();

// Dropped slots are reused last in, first out. Every call takes amortized O(1) time.
template <class Value>
class Slots {
 public:
  Index put(Value const& value) {
    if (unused_.empty()) {
      values_.push_back(value);
      return static_cast<Index>(values_.size() - 1);
    }
    Index const index = unused_.back();
    unused_.pop_back();
    values_[index] = value;
    return index;
  }
  void drop(Index index) { unused_.push_back(index); }

  Value& operator[](Index index) { return values_[index]; }
  Value const& operator[](Index index) const { return values_[index]; }

 private:
  std::vector<Value> values_;
  std::vector<Index> unused_;
};

}  // namespace allocbench

// parts/slots.hpp: values in an array, identified by index.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/huge_pages.hpp"

namespace allocbench {

using Index = std::uint32_t;
constexpr Index kNone = std::numeric_limits<Index>::max();

// Dropped slots are reused last in, first out. Every call takes amortized O(1) time.
template <class Value>
class Slots {
 public:
  Index put(Value const& value) {
    if (dropped_ == 0) [[unlikely]]
      add();
    Index const index = unused_[--dropped_];
    values_[index] = value;
    return index;
  }
  void drop(Index index) { unused_[dropped_++] = index; }

  Value& operator[](Index index) { return values_[index]; }
  Value const& operator[](Index index) const { return values_[index]; }

 private:
  // Adds an unused slot. Does not get the value, which would then have to be in memory.
  [[gnu::noinline]] void add() {
    auto const index = static_cast<Index>(values_.size());
    values_.emplace_back();
    unused_.resize(values_.size());
    drop(index);
  }

  LargeArray<Value> values_;
  LargeArray<Index> unused_;  // as long as `values_`; the first `dropped_` are unused slots
  std::size_t dropped_ = 0;
};

}  // namespace allocbench

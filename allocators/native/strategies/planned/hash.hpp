// strategies/planned/hash.hpp: a hash of a sequence of numbers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace allocbench {

class Hash {
 public:
  void add(std::uint64_t number) {
    value_ = (value_ ^ number) * 0x9E3779B97F4A7C15u + (value_ >> 29);
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0;
};

}  // namespace allocbench

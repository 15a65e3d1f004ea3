// parts/size_class.hpp: size classes that divide each power of two evenly.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>

#include "core/types.hpp"

namespace allocbench {

// Each power of two is divided into 2^fine_bits classes of equal width, so neighboring classes
// differ by at most one part in 2^fine_bits. Sizes below 2^fine_bits have one class each. Class
// numbers increase with size. O(1).
template <int fine_bits>
struct SizeClass {
  static constexpr std::size_t kCount = std::size_t{64} << fine_bits;

  // The class that contains `size`.
  static constexpr std::size_t of(Size size) {
    int const power = 63 - std::countl_zero(size | 1);
    if (power < fine_bits) return static_cast<std::size_t>(size);
    auto const fine = static_cast<std::size_t>(size >> (power - fine_bits));
    return (static_cast<std::size_t>(power - fine_bits) << fine_bits) + fine;
  }

  // The smallest size of a class.
  static constexpr Size smallest(std::size_t size_class) {
    constexpr std::size_t kFine = std::size_t{1} << fine_bits;
    if (size_class < kFine) return size_class;
    auto const shift = (size_class >> fine_bits) - 1;
    return static_cast<Size>(kFine + (size_class & (kFine - 1))) << shift;
  }

  // The first class that contains no size below `size`.
  static constexpr std::size_t at_least(Size size) {
    std::size_t const size_class = of(size);
    return smallest(size_class) == size ? size_class : size_class + 1;
  }
};

}  // namespace allocbench

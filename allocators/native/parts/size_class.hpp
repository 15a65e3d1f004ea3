// parts/size_class.hpp: size classes that divide each power of two evenly, and which are not empty.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

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

// A set of numbers below `count`, which is at most 4096. Every operation takes O(1) time.
template <std::size_t count>
class ClassMarks {
  static_assert(count % 64 == 0 && count <= 4096);

 public:
  void mark(std::size_t number) {
    marks_[number / 64] |= std::uint64_t{1} << (number % 64);
    words_ |= std::uint64_t{1} << (number / 64);
  }

  // Branch-free, because a branch on whether a class becomes empty would be unpredictable.
  void unmark_if(bool empty, std::size_t number) {
    std::uint64_t& word = marks_[number / 64];
    word &= ~(std::uint64_t{empty} << (number % 64));
    words_ &= ~(std::uint64_t{word == 0} << (number / 64));
  }

  // The first marked number at or after `from`, or `count`.
  std::size_t first(std::size_t from) const {
    if (from >= count) return count;
    std::size_t word = from / 64;
    std::uint64_t bits = marks_[word] & (~std::uint64_t{0} << (from % 64));
    if (bits == 0) {
      std::uint64_t const later = word == 63 ? 0 : words_ & (~std::uint64_t{0} << (word + 1));
      if (later == 0) return count;
      word = static_cast<std::size_t>(std::countr_zero(later));
      bits = marks_[word];
    }
    return 64 * word + static_cast<std::size_t>(std::countr_zero(bits));
  }

  // The last marked number before `end`, or `count`.
  std::size_t last(std::size_t end = count) const {
    if (end == 0) return count;
    std::size_t word = (end - 1) / 64;
    std::uint64_t bits = marks_[word] & (~std::uint64_t{0} >> (63 - (end - 1) % 64));
    if (bits == 0) {
      std::uint64_t const earlier = words_ & ((std::uint64_t{1} << word) - 1);
      if (earlier == 0) return count;
      word = static_cast<std::size_t>(63 - std::countl_zero(earlier));
      bits = marks_[word];
    }
    return 64 * word + static_cast<std::size_t>(63 - std::countl_zero(bits));
  }

 private:
  std::array<std::uint64_t, count / 64> marks_ = {};
  std::uint64_t words_ = 0;
};

}  // namespace allocbench

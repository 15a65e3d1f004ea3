// parts/class_marks.hpp: a two-level bitmap of the size classes that are not empty.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace allocbench {

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

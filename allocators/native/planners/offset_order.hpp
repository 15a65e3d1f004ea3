// planners/offset_order.hpp: blocks in the order of a number of bytes, such as their offset.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "planners/plan.hpp"

namespace allocbench {

// Entries are kept in chunks of at most kChunk, field by field, so that a query compares the
// lifetimes of all entries without a branch, and an insertion moves the entries of one chunk only.
class OffsetOrder {
 public:
  void clear() { chunks_.clear(); }

  // `value`: anything that is to be visited with the entry.
  void insert(Size key, std::uint32_t first, std::uint32_t last, Size value) {
    if (chunks_.empty()) chunks_.emplace_back();
    std::size_t at = chunk_of(key);
    if (chunks_[at].count == kChunk) {
      split(at);
      at += chunks_[at + 1].keys[0] <= key;
    }
    chunks_[at].insert(key, first, last, value);
  }

  // Removes an entry that was inserted with this key and value.
  void erase(Size key, Size value) {
    for (std::size_t at = chunk_of(key);; --at) {  // equal keys may begin in an earlier chunk
      if (!chunks_[at].erase(key, value)) continue;
      if (chunks_[at].count == 0) chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(at));
      return;
    }
  }

  // Calls `visit` with the key, value and lifetime of each entry for whose lifetime
  // `matches(first, last)`, which should not branch, is true, in the order of the keys.
  template <class Matches, class Visit>
  void visit_if(Matches matches, Visit visit) const {
    static_assert(std::endian::native == std::endian::little);
    std::array<std::uint8_t, kChunk> match;
    for (Chunk const& chunk : chunks_) {
      std::size_t const count = (chunk.count + kAtOnce - 1) / kAtOnce * kAtOnce;
      for (std::size_t i = 0; i < count; ++i)
        match[i] = matches(chunk.firsts[i], chunk.lasts[i]) ? 1 : 0;
      for (std::size_t i = chunk.count; i < count; ++i) match[i] = 0;
      for (std::size_t first = 0; first < count; first += sizeof(std::uint64_t)) {
        std::uint64_t marks;  // a byte for each entry
        std::memcpy(&marks, &match[first], sizeof marks);
        for (; marks != 0; marks &= marks - 1) {
          std::size_t const i = first + static_cast<std::size_t>(std::countr_zero(marks)) / 8;
          visit(chunk.keys[i], chunk.values[i], chunk.firsts[i], chunk.lasts[i]);
        }
      }
    }
  }

 private:
  static constexpr std::size_t kChunk = 256;
  static constexpr std::size_t kAtOnce = 16;  // entries that are compared together

  struct Chunk {
    std::size_t count = 0;
    std::array<Size, kChunk> keys = {};  // in ascending order
    std::array<Size, kChunk> values = {};
    std::array<std::uint32_t, kChunk> firsts = {}, lasts = {};

    void insert(Size key, std::uint32_t first, std::uint32_t last, Size value) {
      auto const at = std::upper_bound(keys.begin(), keys.begin() + count, key) - keys.begin();
      insert(keys, at, key);
      insert(values, at, value);
      insert(firsts, at, first);
      insert(lasts, at, last);
      ++count;
    }
    bool erase(Size key, Size value) {
      auto const equal = std::equal_range(keys.begin(), keys.begin() + count, key);
      for (auto at = equal.first - keys.begin(); at < equal.second - keys.begin(); ++at) {
        if (values[at] != value) continue;
        erase(keys, at);
        erase(values, at);
        erase(firsts, at);
        erase(lasts, at);
        --count;
        return true;
      }
      return false;
    }
    template <class Array>
    void insert(Array& array, std::ptrdiff_t at, typename Array::value_type entry) {
      std::copy_backward(array.begin() + at, array.begin() + count, array.begin() + count + 1);
      array[at] = entry;
    }
    template <class Array>
    void erase(Array& array, std::ptrdiff_t at) {
      std::copy(array.begin() + at + 1, array.begin() + count, array.begin() + at);
    }
  };

  // The last chunk that begins at or below the key, or the first one.
  std::size_t chunk_of(Size key) const {
    auto const above = std::ranges::upper_bound(chunks_, key, {},
                                                [](Chunk const& chunk) { return chunk.keys[0]; });
    return above == chunks_.begin() ? 0 : static_cast<std::size_t>(above - chunks_.begin()) - 1;
  }

  void split(std::size_t at) {
    auto const upper = chunks_.emplace(chunks_.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    auto const lower = upper - 1;
    auto const move = [](auto const& from, auto& to) {
      std::copy(from.begin() + kChunk / 2, from.end(), to.begin());
    };
    move(lower->keys, upper->keys);
    move(lower->values, upper->values);
    move(lower->firsts, upper->firsts);
    move(lower->lasts, upper->lasts);
    lower->count = kChunk / 2;
    upper->count = kChunk - kChunk / 2;
  }

  std::vector<Chunk> chunks_;
};

}  // namespace allocbench

// strategies/rmm_arena/superblocks.hpp: superblocks in order of address.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "core/types.hpp"

namespace allocbench {

struct FreeRange {
  Address address;
  Size size;
};

struct Superblock {
  Address address;
  Size size;
  std::vector<FreeRange> free = {};  // in order of address
  Size largest = 0;                  // of `free`

  Superblock(Address address, Size size)
      : address(address), size(size), free{{address, size}}, largest(size) {}

  bool empty() const { return largest == size; }
};

// A search looks only at the largest free block of each superblock, so these lie next to each
// other. A place is an index, and ends when a superblock is added or removed.
class Superblocks {
 public:
  static constexpr std::size_t kNowhere = SIZE_MAX;

  std::size_t size() const { return blocks_.size(); }
  Superblock& operator[](std::size_t place) { return *blocks_[place]; }
  Superblock const& operator[](std::size_t place) const { return *blocks_[place]; }

  // The first place whose superblock has room for `size` bytes; counts those before it.
  std::size_t find_room(Size size, std::uint64_t& steps) const {
    auto const found = std::ranges::find_if(largest_, [&](Size room) { return room >= size; });
    steps += static_cast<std::uint64_t>(found - largest_.begin());
    return found == largest_.end() ? kNowhere : static_cast<std::size_t>(found - largest_.begin());
  }

  // The place of the superblock around an address.
  std::size_t find_around(Address address) const {
    std::size_t const after = upper_bound(address);
    if (after == 0 || address >= begin_[after - 1] + blocks_[after - 1]->size) return kNowhere;
    return after - 1;
  }

  // To be called after a change of `largest`.
  void update(std::size_t place) { largest_[place] = blocks_[place]->largest; }

  std::size_t add(std::unique_ptr<Superblock> superblock) {
    std::size_t const place = upper_bound(superblock->address);
    auto const at = static_cast<std::ptrdiff_t>(place);
    begin_.insert(begin_.begin() + at, superblock->address);
    largest_.insert(largest_.begin() + at, superblock->largest);
    blocks_.insert(blocks_.begin() + at, std::move(superblock));
    return place;
  }

  std::unique_ptr<Superblock> remove(std::size_t place) {
    auto const at = static_cast<std::ptrdiff_t>(place);
    std::unique_ptr<Superblock> superblock = std::move(blocks_[place]);
    begin_.erase(begin_.begin() + at);
    largest_.erase(largest_.begin() + at);
    blocks_.erase(blocks_.begin() + at);
    return superblock;
  }

  void clear() { *this = {}; }

 private:
  std::size_t upper_bound(Address address) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(begin_, address) - begin_.begin());
  }

  std::vector<Address> begin_;
  std::vector<Size> largest_;
  std::vector<std::unique_ptr<Superblock>> blocks_;
};

}  // namespace allocbench

// parts/address_map.hpp: a hash map from address to index, with which a free finds its block.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/types.hpp"
#include "parts/node.hpp"

namespace allocbench {

// Each bucket is one cache line with five entries. An entry whose bucket is full is stored in the
// next one, and the full bucket counts it. The count tells a search where to stop, and erasing
// leaves no tombstone. The slots of a bucket are compared without branches, and the table is at
// most half full, so nearly every operation ends in the first bucket. The size of the table depends
// on the number of entries, not on the size of the memory. Every operation takes O(1) expected
// steps. Source of the overflow counts: F14 (Bronson and Shi, Open-sourcing F14, Facebook, 2019).
class AddressMap {
 public:
  AddressMap() : buckets_(kFewest) {}

  // The address must not be 0 or already in the map.
  void insert(Address address, Index value) {
    if (2 * (used_ + 1) > kSlots * buckets_.size()) grow();
    place(address, value);
    ++used_;
  }

  Index find(Address address) const {
    for (std::size_t i = home_of(address);; i = next(i)) {
      Bucket const& bucket = buckets_[i];
      if (unsigned const match = matching(bucket, address)) return bucket.values[slot(match)];
      if (bucket.overflow == 0) return kNone;
    }
  }

  // Returns the erased value, or kNone.
  Index erase(Address address) {
    std::size_t const home = home_of(address);
    for (std::size_t i = home;; i = next(i)) {
      Bucket& bucket = buckets_[i];
      if (unsigned const match = matching(bucket, address)) {
        bucket.addresses[slot(match)] = kEmpty;
        --used_;
        for (std::size_t passed = home; passed != i; passed = next(passed))
          --buckets_[passed].overflow;
        return bucket.values[slot(match)];
      }
      if (bucket.overflow == 0) return kNone;
    }
  }

  std::size_t size() const { return used_; }

  // Buckets visited so far, beyond the first one of each operation.
  std::uint64_t search_steps() const { return search_steps_; }

  template <class Visit>
  void for_each(Visit visit) const {
    for (Bucket const& bucket : buckets_)
      for (std::size_t slot = 0; slot < kSlots; ++slot)
        if (bucket.addresses[slot] != kEmpty) visit(bucket.addresses[slot], bucket.values[slot]);
  }

 private:
  static constexpr Address kEmpty = 0;
  static constexpr std::size_t kSlots = 5;
  static constexpr std::size_t kFewest = 16;

  struct alignas(64) Bucket {
    std::array<Address, kSlots> addresses = {};
    std::array<Index, kSlots> values = {};
    std::uint32_t overflow = 0;  // entries that skipped this bucket because it was full
  };

  // A bit for each slot that contains `address`.
  static unsigned matching(Bucket const& bucket, Address address) {
    unsigned matches = 0;
    for (std::size_t slot = 0; slot < kSlots; ++slot)
      matches |= static_cast<unsigned>(bucket.addresses[slot] == address) << slot;
    return matches;
  }
  static std::size_t slot(unsigned matches) {
    return static_cast<std::size_t>(std::countr_zero(matches));
  }

  std::size_t next(std::size_t i) const {
    ++search_steps_;
    return (i + 1) & (buckets_.size() - 1);
  }
  // Fibonacci hashing: takes the high half of the product, where all address bits are mixed.
  std::size_t home_of(Address address) const {
    return static_cast<std::size_t>((address * 0x9E3779B97F4A7C15u) >> 32) & (buckets_.size() - 1);
  }

  void place(Address address, Index value) {
    std::size_t i = home_of(address);
    unsigned empty = matching(buckets_[i], kEmpty);
    for (; empty == 0; empty = matching(buckets_[i], kEmpty)) {
      ++buckets_[i].overflow;
      i = next(i);
    }
    buckets_[i].addresses[slot(empty)] = address;
    buckets_[i].values[slot(empty)] = value;
  }

  void grow() {
    std::vector<Bucket> old(buckets_.size() * 2);
    old.swap(buckets_);
    for (Bucket const& bucket : old)
      for (std::size_t slot = 0; slot < kSlots; ++slot)
        if (bucket.addresses[slot] != kEmpty) place(bucket.addresses[slot], bucket.values[slot]);
  }

  std::vector<Bucket> buckets_;
  std::size_t used_ = 0;
  mutable std::uint64_t search_steps_ = 0;
};

}  // namespace allocbench

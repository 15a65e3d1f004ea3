// parts/address_map.hpp: address -> index, for finding the block that a free names.
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

// A hash table of buckets, each one cache line of five entries; an entry that finds its bucket
// full goes on to the next, and the bucket counts it, so that a search knows where to stop and an
// erased entry leaves no trace. A bucket is searched without a branch: in a table that is at most
// half full nearly every operation ends in the first one. The size of the table follows the
// number of entries, never the size of the memory. Every operation takes O(1) expected steps.
// (Bucket with an overflow count: F14, Bronson and Shi, Open-sourcing F14, Facebook, 2019.)
class AddressMap {
 public:
  AddressMap() : buckets_(kFewest) {}

  // The address is neither 0 nor in the map.
  void insert(Address address, Index value) {
    if (2 * (used_ + 1) > kSlots * buckets_.size()) grow();
    place(address, value);
    ++used_;
  }

  Index find(Address address) const {
    for (std::size_t at = home_of(address);; at = next(at)) {
      Bucket const& bucket = buckets_[at];
      if (unsigned const match = matching(bucket, address)) return bucket.values[slot(match)];
      if (bucket.overflow == 0) return kNone;
    }
  }

  // The value that was there, or kNone.
  Index erase(Address address) {
    std::size_t const home = home_of(address);
    for (std::size_t at = home;; at = next(at)) {
      Bucket& bucket = buckets_[at];
      if (unsigned const match = matching(bucket, address)) {
        bucket.addresses[slot(match)] = kEmpty;
        --used_;
        for (std::size_t passed = home; passed != at; passed = next(passed))
          --buckets_[passed].overflow;
        return bucket.values[slot(match)];
      }
      if (bucket.overflow == 0) return kNone;
    }
  }

  std::size_t size() const { return used_; }

  // Buckets passed since the beginning, beside the one that each operation begins in.
  std::uint64_t steps() const { return steps_; }

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
    std::uint32_t overflow = 0;  // entries at home here, or before, that live further on
  };

  // One bit for each slot that holds `address`.
  static unsigned matching(Bucket const& bucket, Address address) {
    unsigned found = 0;
    for (std::size_t slot = 0; slot < kSlots; ++slot)
      found |= static_cast<unsigned>(bucket.addresses[slot] == address) << slot;
    return found;
  }
  static std::size_t slot(unsigned found) {
    return static_cast<std::size_t>(std::countr_zero(found));
  }

  std::size_t next(std::size_t at) const {
    ++steps_;
    return (at + 1) & (buckets_.size() - 1);
  }
  // Fibonacci hashing: the high half of the product, where all the address bits have mixed.
  std::size_t home_of(Address address) const {
    return static_cast<std::size_t>((address * 0x9E3779B97F4A7C15u) >> 32) & (buckets_.size() - 1);
  }

  void place(Address address, Index value) {
    std::size_t at = home_of(address);
    unsigned empty = matching(buckets_[at], kEmpty);
    for (; empty == 0; empty = matching(buckets_[at], kEmpty)) {
      ++buckets_[at].overflow;
      at = next(at);
    }
    buckets_[at].addresses[slot(empty)] = address;
    buckets_[at].values[slot(empty)] = value;
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
  mutable std::uint64_t steps_ = 0;
};

}  // namespace allocbench

// parts/address_map.hpp: a hash map from address to index, with which a free finds its block.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>

#include "core/huge_pages.hpp"
#include "parts/node.hpp"

namespace allocbench {

// Each bucket is one cache line with five entries. An entry whose bucket is full is stored in the
// next one, and the full bucket counts it. The count tells a search where to stop, and erasing
// leaves no tombstone. Which slot of a bucket has an address is found without branches, because
// they would be unpredictable, and the table is at most half full, so nearly every operation ends
// in the first bucket. The size of the table depends on the number of entries, not on the size of
// the memory. Every operation takes O(1) expected steps. A trace can be written so that the
// addresses of its blocks have the same home; the table then draws another hash. Source of the
// overflow counts: F14 (Bronson and Shi, Open-sourcing F14, Facebook, 2019).
class AddressMap {
 public:
  AddressMap() : buckets_(kFewest) {}

  // The address must not be 0 or already in the map.
  [[gnu::always_inline]] void insert(Address address, Index value) {
    Bucket& home = buckets_[home_of(address)];
    if (used_ == most_ || home.used == kFull) [[unlikely]]
      return insert_elsewhere(address, value);
    ++used_;
    home.put(address, value);
  }

  Index find(Address address) const {
    Bucket const& bucket = buckets_[home_of(address)];
    std::size_t const slot = bucket.slot_of(address);
    return slot != kSlots ? bucket.values[slot] : find_after(home_of(address), address);
  }

  // Returns the erased value, or kNone.
  Index erase(Address address) {
    std::size_t const home = home_of(address);
    std::size_t const slot = buckets_[home].slot_of(address);
    if (slot == kSlots) [[unlikely]]
      return erase_after(home, address);
    --used_;
    return buckets_[home].take(slot);
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
  static constexpr std::uint32_t kFull = (1u << kSlots) - 1;
  static constexpr std::size_t kMostPassed = 32;  // full buckets; chance passes a few

  struct alignas(64) Bucket {
    std::array<Address, kSlots> addresses = {};
    std::array<Index, kSlots> values = {};
    std::uint32_t overflow : 24 = 0;  // entries that skipped this bucket because it was full
    std::uint32_t used : 8 = 0;       // a bit for each slot

    // The slot that contains `address`, or kSlots.
    std::size_t slot_of(Address address) const {
      std::uint32_t matches = 1u << kSlots;
      for (std::size_t slot = 0; slot < kSlots; ++slot)
        matches |= static_cast<std::uint32_t>(addresses[slot] == address) << slot;
      return static_cast<std::size_t>(std::countr_zero(matches));
    }
    void put(Address address, Index value) {  // into a bucket that is not full
      auto const slot = static_cast<std::size_t>(std::countr_one(std::uint32_t{used}));
      used |= (used + 1) & kFull;
      addresses[slot] = address;
      values[slot] = value;
    }
    Index take(std::size_t slot) {
      used &= ~(1u << slot) & kFull;
      addresses[slot] = kEmpty;
      return values[slot];
    }
  };

  std::size_t next(std::size_t i) const {
    ++search_steps_;
    return (i + 1) & (buckets_.size() - 1);
  }
  // The highest bits of the product depend on all address bits.
  std::size_t home_of(Address address) const {
    return static_cast<std::size_t>((address * factor_) >> shift_);
  }

  [[gnu::noinline]] void insert_elsewhere(Address address, Index value) {
    if (used_++ == most_) grow();
    if (insert_after(home_of(address), address, value) <= kMostPassed) return;
    std::random_device random;
    factor_ = (std::uint64_t{random()} << 32 | random()) | 1;
    rehash(buckets_.size());
  }

  // The following functions continue in the buckets after `home`.

  // Returns how many full buckets it passed.
  std::size_t insert_after(std::size_t home, Address address, Index value) {
    std::size_t i = home, passed = 0;
    for (; buckets_[i].used == kFull; i = next(i), ++passed) ++buckets_[i].overflow;
    buckets_[i].put(address, value);
    return passed;
  }

  [[gnu::noinline]] Index find_after(std::size_t home, Address address) const {
    for (std::size_t i = home; buckets_[i].overflow != 0;) {
      i = next(i);
      if (std::size_t const slot = buckets_[i].slot_of(address); slot != kSlots)
        return buckets_[i].values[slot];
    }
    return kNone;
  }

  [[gnu::noinline]] Index erase_after(std::size_t home, Address address) {
    for (std::size_t i = home; buckets_[i].overflow != 0;) {
      i = next(i);
      std::size_t const slot = buckets_[i].slot_of(address);
      if (slot == kSlots) continue;
      for (std::size_t passed = home; passed != i; passed = next(passed))
        --buckets_[passed].overflow;
      --used_;
      return buckets_[i].take(slot);
    }
    return kNone;
  }

  void grow() {
    --shift_;
    most_ *= 2;
    rehash(buckets_.size() * 2);
  }

  void rehash(std::size_t size) {
    LargeArray<Bucket> old(size);
    old.swap(buckets_);
    for (Bucket const& bucket : old)
      for (std::size_t slot = 0; slot < kSlots; ++slot)
        if (bucket.addresses[slot] != kEmpty)
          insert_after(home_of(bucket.addresses[slot]), bucket.addresses[slot],
                       bucket.values[slot]);
  }

  LargeArray<Bucket> buckets_;
  std::uint64_t factor_ = 0x9E3779B97F4A7C15u;  // Fibonacci hashing
  int shift_ = 64 - std::countr_zero(kFewest);
  std::size_t used_ = 0;
  std::size_t most_ = kSlots * kFewest / 2;
  mutable std::uint64_t search_steps_ = 0;
};

}  // namespace allocbench

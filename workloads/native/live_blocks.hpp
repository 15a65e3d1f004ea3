// live_blocks.hpp: which block an event is about, by the blocks that are alive before it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hash_tables.hpp"

namespace allocbench {

// Of n events: `begin`, `from_start` and `left_out` have n elements. Events are indices.
struct Pairs {
  std::vector<std::int64_t> begin;         // the event that began its block; any if left out
  std::vector<std::uint8_t> from_start;    // the free of a block that was alive before all events
  std::vector<std::uint8_t> left_out;      // a request for no bytes, or a free of no block
  std::vector<std::int64_t> unfreed;       // allocs at the address of a block that is alive
  std::vector<std::int64_t> still_alive;   // the alloc of that block, for each of `unfreed`
  std::vector<std::uint64_t> addresses;    // all of them once, in any order
  std::uint64_t requests_for_nothing = 0;  // how many are left out for each reason
  std::uint64_t stray_frees = 0;
  std::uint64_t search_steps = 0;  // slots of the table visited beyond the first of each search
};

// The first free of an address without an alloc before it ends a block that was alive before, if it
// has a size. The spans have equal lengths.
Pairs pair_events(std::span<std::uint8_t const> is_alloc, std::span<std::uint64_t const> address,
                  std::span<std::uint64_t const> size);

// Gives each live block a number. It is free for another block after the block's free, so all
// numbers are below the largest number of blocks that are alive at once.
class BlockNumbers {
 public:
  // Writes the number of the block of each alloc and free, and `block` of any other event. Stops at
  // the first event that allocates a live block or frees one that is not live, and returns its
  // index, or the number of events if there is none. The spans have equal lengths.
  std::size_t number(std::span<std::uint8_t const> op, std::span<std::uint32_t const> block,
                     std::span<std::uint32_t> numbers);

 private:
  struct Slot {
    std::uint32_t key = 0;  // the block's id
    std::uint32_t number = kNone;
    bool used() const { return number != kNone; }
  };
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  Probed<Slot> live_;
  std::vector<std::uint32_t> free_;
};

}  // namespace allocbench

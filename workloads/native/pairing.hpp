// pairing.hpp: which of the events that name blocks by address belong together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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

}  // namespace allocbench

// live_blocks.hpp: which block an event is about, by the blocks that are alive before it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/trace.hpp"
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
inline Pairs pair_events(std::span<std::uint8_t const> is_alloc,
                         std::span<std::uint64_t const> address,
                         std::span<std::uint64_t const> size) {
  constexpr std::int64_t kNone = -1;
  // What happened last at an address.
  struct Place {
    std::uint64_t key = 0;       // the address
    std::int64_t alloc = kNone;  // the event of the block that is alive there
    bool known = false;
    bool used() const { return known; }
  };
  std::size_t const events = is_alloc.size();
  Pairs pairs;
  pairs.begin.resize(events);
  pairs.from_start.resize(events);
  pairs.left_out.resize(events);
  Probed<Place> places;
  for (std::size_t n = 0; n < events; ++n) {
    auto const event = static_cast<std::int64_t>(n);
    if (is_alloc[n] && size[n] == 0) {
      pairs.left_out[n] = true;
      ++pairs.requests_for_nothing;
      continue;
    }
    Place& found = places.find(address[n]);
    bool const known = found.used();
    Place& place = known ? found : places.add(found, {address[n], kNone, true});
    pairs.begin[n] = event;
    if (is_alloc[n]) {
      if (place.alloc != kNone) {
        pairs.unfreed.push_back(event);
        pairs.still_alive.push_back(place.alloc);
      }
      place.alloc = event;
    } else if (place.alloc != kNone) {
      pairs.begin[n] = place.alloc;
      place.alloc = kNone;
    } else if (!known && size[n] > 0) {
      pairs.from_start[n] = true;
    } else {
      pairs.left_out[n] = true;
      ++pairs.stray_frees;
    }
  }
  pairs.addresses.reserve(places.count());
  for (Place const& place : places.slots())
    if (place.used()) pairs.addresses.push_back(place.key);
  pairs.search_steps = places.search_steps();
  return pairs;
}

// Gives each live block a number. It is free for another block after the block's free, so all
// numbers are below the largest number of blocks that are alive at once.
class BlockNumbers {
 public:
  // Writes the number of the block of each alloc and free, and `block` of any other event. Stops at
  // the first event that allocates a live block or frees one that is not live, and returns its
  // index, or the number of events if there is none. The spans have equal lengths.
  std::size_t number(std::span<std::uint8_t const> op, std::span<std::uint32_t const> block,
                     std::span<std::uint32_t> numbers) {
    for (std::size_t event = 0; event < op.size(); ++event) {
      numbers[event] = block[event];
      if (Op{op[event]} == Op::kAlloc) {
        Slot& slot = live_.find(block[event]);
        if (slot.used()) return event;
        // Without a free number, the live blocks have the numbers from 0 on.
        auto number = static_cast<std::uint32_t>(live_.count());
        if (!free_.empty()) {
          number = free_.back();
          free_.pop_back();
        }
        live_.add(slot, {block[event], number});
        numbers[event] = number;
      } else if (Op{op[event]} == Op::kFree) {
        Slot& slot = live_.find(block[event]);
        if (!slot.used()) return event;
        numbers[event] = slot.number;
        free_.push_back(slot.number);
        live_.remove(slot);
      }
    }
    return op.size();
  }

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

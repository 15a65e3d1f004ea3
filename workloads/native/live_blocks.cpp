// live_blocks.cpp: which block an event is about, by the blocks that are alive before it.
// SPDX-License-Identifier: Apache-2.0
#include "live_blocks.hpp"

#include "core/trace.hpp"

namespace allocbench {
namespace {

constexpr std::int64_t kNone = -1;

// What happened last at an address.
struct Place {
  std::uint64_t key = 0;       // the address
  std::int64_t alloc = kNone;  // the event of the block that is alive there
  bool known = false;
  bool used() const { return known; }
};

}  // namespace

Pairs pair_events(std::span<std::uint8_t const> is_alloc, std::span<std::uint64_t const> address,
                  std::span<std::uint64_t const> size) {
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

std::size_t BlockNumbers::number(std::span<std::uint8_t const> op,
                                 std::span<std::uint32_t const> block,
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

}  // namespace allocbench

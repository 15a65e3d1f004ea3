// pairing.cpp: which of the events that name blocks by address belong together.
// SPDX-License-Identifier: Apache-2.0
#include "pairing.hpp"

#include <bit>
#include <cstddef>

namespace allocbench {
namespace {

constexpr std::int64_t kNone = -1;

// What happened last at an address.
struct Place {
  std::uint64_t address = 0;
  std::int64_t alloc = kNone;  // the event of the block that is alive there
  bool used = false;
};

// A hash table with linear probing that grows, at most half full.
class Places {
 public:
  struct Found {
    Place& place;  // valid until the next call
    bool known;
  };
  // The place of an address, which is added unless it is known.
  Found find_or_add(std::uint64_t address) {
    if (2 * (count_ + 1) > places_.size()) grow();
    Place& place = find(address);
    bool const known = place.used;
    if (!known) {
      place = {address, kNone, true};
      ++count_;
    }
    return {place, known};
  }

  std::vector<std::uint64_t> addresses() const {
    std::vector<std::uint64_t> found;
    found.reserve(count_);
    for (Place const& place : places_)
      if (place.used) found.push_back(place.address);
    return found;
  }

 private:
  // The place of an address, or an unused one. The factor is 2^64 divided by the golden ratio.
  Place& find(std::uint64_t address) {
    int const bits = std::countr_zero(places_.size());
    std::size_t at = (address * 0x9E3779B97F4A7C15u) >> (64 - bits);
    while (places_[at].used && places_[at].address != address) at = (at + 1) % places_.size();
    return places_[at];
  }

  void grow() {
    std::vector<Place> old(places_.empty() ? 1024 : 2 * places_.size());
    old.swap(places_);
    for (Place const& place : old)
      if (place.used) find(place.address) = place;
  }

  std::vector<Place> places_;  // their number is a power of two
  std::size_t count_ = 0;
};

}  // namespace

Pairs pair_events(std::span<std::uint8_t const> is_alloc, std::span<std::uint64_t const> address,
                  std::span<std::uint64_t const> size) {
  std::size_t const events = is_alloc.size();
  Pairs pairs;
  pairs.begin.resize(events);
  pairs.from_start.resize(events);
  pairs.left_out.resize(events);
  Places places;
  for (std::size_t n = 0; n < events; ++n) {
    auto const event = static_cast<std::int64_t>(n);
    if (is_alloc[n] && size[n] == 0) {
      pairs.left_out[n] = true;
      ++pairs.requests_for_nothing;
      continue;
    }
    auto const [place, known] = places.find_or_add(address[n]);
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
  pairs.addresses = places.addresses();
  return pairs;
}

}  // namespace allocbench

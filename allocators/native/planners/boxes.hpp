// planners/boxes.hpp: blocks as boxes over sections of time, and the limits of searches for places
// for them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "planners/planners.hpp"

namespace allocbench {

// A section is a maximal set of blocks that are alive together; sections are in the order of time.
struct Sections {
  struct Box {  // a block, which spans the sections [lo, hi)
    std::uint32_t lo, hi;
    Size size, rounded;   // bytes; `rounded` up to the alignment
    std::uint32_t alive;  // instants
    std::uint32_t block;  // index of the lifetime
    std::uint64_t kind;   // a hash that is equal for interchangeable boxes
  };
  std::vector<Box> boxes;  // in order of `lo`
  std::vector<Size> load;  // of each section: the rounded bytes of its boxes
};

// Mixes the bits of a number (splitmix64 by Steele, Lea and Flood, OOPSLA 2014).
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// O(n log n) time plus the sum of the sections that the boxes span.
inline Sections sections_of(std::span<Lifetime const> lifetimes, Size alignment) {
  auto const begins = sorted_by(&Lifetime::first, lifetimes);
  auto const ends = sorted_by(&Lifetime::last, lifetimes);

  // A section is complete when a block ends after at least one has begun in it.
  std::vector<std::uint32_t> lo(lifetimes.size()), hi(lifetimes.size());
  std::uint32_t sections = 0;
  bool begun = false;
  auto ending = ends.begin();
  auto const end_until = [&](std::uint32_t now) {
    for (; ending != ends.end() && lifetimes[*ending].last <= now; ++ending) {
      sections += std::exchange(begun, false);
      hi[*ending] = sections;
    }
  };
  for (std::uint32_t const block : begins) {
    end_until(lifetimes[block].first);
    lo[block] = sections;
    begun = true;
  }
  end_until(kForever);

  Sections result;
  result.load.assign(sections, 0);
  for (std::uint32_t const block : begins) {
    auto const [size, first, last] = lifetimes[block];
    Size const rounded = round_up(size, alignment);
    result.boxes.push_back({lo[block], hi[block], size, rounded, last - first, block,
                            mix(mix(mix(size) + lo[block]) + hi[block])});
    for (std::uint32_t section = lo[block]; section < hi[block]; ++section)
      result.load[section] += rounded;
  }
  return result;
}

using Units = std::uint32_t;  // of bytes: half as wide as Size, so loops are twice as fast

struct ScaledBox {
  std::uint32_t lo, hi;  // sections, half-open
  Units size;
  Units limit;  // the highest offset at which the box stays below the height
  std::uint64_t kind;
  std::uint32_t block;
};

constexpr Size kMostUnits = Size{1} << 30;  // sums of two stay below 2^32

struct ScaledBoxes {
  std::vector<ScaledBox> boxes;  // in the order of Sections
  std::vector<Units> loads;      // of each section
  Size unit;                     // bytes
  Units height;                  // the highest end of a box, rounded up
};

// Empty if a section is too full for a plan of at most `height` bytes. A unit is what all rounded
// sizes have in common. If heights in this unit need more than 30 bits, it is larger and sizes are
// rounded up, so plans without any waste may be missing.
inline std::optional<ScaledBoxes> scaled(Sections const& sections, Size height, Size alignment) {
  ScaledBoxes result{{}, {}, 0, 0};
  for (auto const& box : sections.boxes) result.unit = std::gcd(result.unit, box.rounded);
  if (result.unit == 0) result.unit = alignment;
  if (height / result.unit >= kMostUnits)
    result.unit = std::max(alignment, std::bit_ceil(height / kMostUnits + 1));

  std::vector<Size> loads(sections.load.size());
  for (auto const& box : sections.boxes) {
    if (box.size > height) return {};
    auto const size = static_cast<Units>((box.size + result.unit - 1) / result.unit);
    auto const limit = static_cast<Units>((height - box.size) / result.unit);
    result.boxes.push_back({box.lo, box.hi, size, limit, box.kind, box.block});
    result.height = std::max(result.height, limit + size);
    for (std::uint32_t section = box.lo; section < box.hi; ++section) loads[section] += size;
  }
  for (Size const load : loads) {
    if (load > result.height) return {};
    result.loads.push_back(static_cast<Units>(load));
  }
  return result;
}

// Ends a search after a number of nodes, or when `stop` returns true.
class SearchLimit {
 public:
  // `stop` is called after this many steps, which the search defines.
  explicit SearchLimit(std::uint64_t steps_between_stops) : between_stops_(steps_between_stops) {}

  void start(std::uint64_t nodes, Stop const& stop) {
    nodes_left_ = nodes;
    stop_ = &stop;
    reached_ = false;
  }

  // Counts a node with this many steps. Returns true if the limit is reached.
  bool count(std::uint64_t steps) {
    steps_ += steps;
    if (steps_ >= between_stops_) {
      steps_ = 0;
      reached_ = reached_ || (*stop_)();
    }
    reached_ = reached_ || nodes_left_ == 0;
    if (!reached_) --nodes_left_;
    return reached_;
  }

  bool reached() const { return reached_; }

 private:
  std::uint64_t between_stops_, steps_ = 0, nodes_left_ = 0;
  Stop const* stop_ = nullptr;
  bool reached_ = false;
};

// Remembers states from which no plan of a height can be reached, by their hashes. A state can be
// forgotten when another one is added.
class FailedStates {
 public:
  // Forgets all states if the height is another one, or if the number of nodes asks for a table of
  // another size.
  void start(Size height, std::uint64_t nodes) {
    auto const capacity = std::bit_ceil(std::min(nodes, kMost));
    if (height != height_ || states_.size() != capacity) states_.assign(capacity, 0);
    height_ = height;
  }

  bool contain(std::uint64_t state) const { return states_[state % states_.size()] == state; }
  void add(std::uint64_t state) { states_[state % states_.size()] = state; }

 private:
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 20;

  std::vector<std::uint64_t> states_;
  Size height_ = 0;
};

}  // namespace allocbench

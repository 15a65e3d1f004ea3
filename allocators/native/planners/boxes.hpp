// planners/boxes.hpp: blocks as boxes over sections of time, and the limits of searches for places
// for them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planners/plan.hpp"

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

// O(n log n) time plus the sum of the sections that the boxes span.
Sections sections_of(std::span<Lifetime const> lifetimes, Size alignment);

// Mixes the bits of a number (splitmix64 by Steele, Lea and Flood, OOPSLA 2014).
constexpr std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

using Units = std::uint32_t;  // of bytes: half as wide as Size, so loops are twice as fast

struct ScaledBox {
  std::uint32_t lo, hi;  // sections, half-open
  Units size;
  Units limit;  // the highest offset at which the box stays below the height
  std::uint64_t kind;
  std::uint32_t block;
};

struct ScaledBoxes {
  std::vector<ScaledBox> boxes;  // in the order of Sections
  std::vector<Units> loads;      // of each section
  Size unit;                     // bytes
  Units height;                  // the highest end of a box, rounded up
  bool exact;                    // false if sizes were rounded up to a larger unit
};

// Empty if a section is too full for a plan of at most `height` bytes. A unit is what all rounded
// sizes have in common. If heights in this unit need more than 30 bits, it is larger and sizes are
// rounded up, so plans without any waste may be missing.
std::optional<ScaledBoxes> scaled(Sections const& sections, Size height, Size alignment);

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

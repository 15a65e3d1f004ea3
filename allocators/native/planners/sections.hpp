// planners/sections.hpp: blocks as boxes over sections of time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
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

}  // namespace allocbench

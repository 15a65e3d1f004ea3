// planners/plan.hpp: an offset for every block, computed when all lifetimes are known, and lower
// bounds on the height.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "core/types.hpp"

namespace allocbench {

constexpr std::uint32_t kForever = std::numeric_limits<std::uint32_t>::max();

// A block is alive from event `first` up to but not including `last`; a `last` of kForever means
// that it is never freed. Graphs and files with inclusive ends are converted where they are read.
struct Lifetime {
  Size size;
  std::uint32_t first;
  std::uint32_t last;
};

// Called periodically by planners that take long; returning true asks them to end.
using Stop = std::function<bool()>;

constexpr std::size_t kBlocksBetweenStops = 64;  // of planners that place one block after another

struct Plan {
  std::vector<Size> offsets;  // one per lifetime, in the same order
  Size height = 0;            // bytes from offset 0 to the highest end
};

// What a search for a plan of a given height answers. kNone: it has proved that no plan exists.
enum class Answer { kFound, kNone, kUnknown };

// The largest sum of the sizes of blocks alive at the same instant. O(n log n) time.
Size max_load(std::span<Lifetime const> lifetimes);

// A lower bound for plans with aligned offsets: of the blocks alive at an instant, all except the
// highest one occupy their size rounded up. It is at least max_load, and equal to it if all sizes
// are multiples of the alignment. O(n log n) time.
Size least_height(std::span<Lifetime const> lifetimes, Size alignment);

// For each block, the largest sum of the sizes of blocks alive at the same instant while it is
// alive. O(n log n) time.
std::vector<Size> peak_loads(std::span<Lifetime const> lifetimes);

}  // namespace allocbench

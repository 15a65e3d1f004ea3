// planners/plan.hpp: an offset for every block, made with all lifetimes known.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "core/types.hpp"

namespace allocbench {

constexpr std::uint32_t kForever = std::numeric_limits<std::uint32_t>::max();

// A block is alive from `first` up to but not including `last`, in the order of events; one whose
// `last` is kForever is never freed. Graphs and files that count both ends in are converted where
// they come in, and nowhere else.
struct Lifetime {
  Size size;
  std::uint32_t first;
  std::uint32_t last;
};

struct Plan {
  std::vector<Size> offsets;  // one for each lifetime, in the same order
  Size height = 0;            // bytes from offset 0 to the highest end
};

}  // namespace allocbench

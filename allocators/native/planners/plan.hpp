// planners/plan.hpp: an offset for every block, made with all lifetimes known.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "core/types.hpp"

namespace allocbench {

// A block is alive from `first` up to but not including `last`, in the order of events.
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

// planners/load.hpp: what no plan can be lower than.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "planners/plan.hpp"

namespace allocbench {

// The largest sum of the sizes alive at one instant. O(n log n) steps.
Size max_load(std::span<Lifetime const> lifetimes);

// The least height that aligned offsets allow, by the same argument: of the blocks alive at one
// instant, each but the highest occupies its size rounded up. At least max_load; equal to it where
// sizes are multiples of the alignment. O(n log n) steps.
Size least_height(std::span<Lifetime const> lifetimes, Size alignment);

}  // namespace allocbench

// planners/load.hpp: lower bounds on the height of any plan.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "planners/plan.hpp"

namespace allocbench {

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

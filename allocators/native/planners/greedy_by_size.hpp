// planners/greedy_by_size.hpp: the largest block first, in the gap that fits best.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "planners/plan.hpp"

namespace allocbench {

// TFLite's planner of today. First come the blocks alive throughout (from instant 0, never freed)
// in the order given; then the others by size, largest first, by begin, earliest first, and the
// last given first. Each takes, among the blocks placed that are alive together with it, the gap
// that leaves least over, the lowest among equals, or else the aligned end of the highest. A gap
// counts from its aligned start when it is compared with the best so far, and from its unaligned
// start once it is the best. Offsets are aligned, sizes are not rounded. O(n^2) steps.
// Source: SimpleMemoryArena and ArenaPlanner of TensorFlow Lite; Pisarchyk and Lee, "Efficient
// Memory Management for Deep Neural Net Inference" (arXiv 2001.03288).
Plan plan_greedy_by_size(std::span<Lifetime const> lifetimes, Size alignment);

}  // namespace allocbench

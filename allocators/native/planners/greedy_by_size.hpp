// planners/greedy_by_size.hpp: places the largest block first, each in the tightest gap.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>

#include "planners/plan.hpp"

namespace allocbench {

// TFLite's current planner. Blocks that are always alive (from instant 0, never freed) come first,
// in the order given. The others follow by size (largest first), then by begin (earliest first),
// then in reverse of the order given. Each block takes the gap that leaves the fewest bytes between
// the placed blocks whose lifetimes overlap its own (the lowest among equals) or, if no gap is
// large enough, the aligned end of the highest one. As in TFLite, a gap is measured from its
// aligned start when it is compared with the best gap so far, but from its unaligned start once it
// is the best. Offsets are aligned; sizes are not rounded. O(n^2) time. Source: SimpleMemoryArena
// and ArenaPlanner of TensorFlow Lite; Pisarchyk and Lee, "Efficient Memory Management for Deep
// Neural Net Inference" (arXiv 2001.03288).
Plan plan_greedy_by_size(std::span<Lifetime const> lifetimes, Size alignment);

// The same; empty if `stop` returned true.
std::optional<Plan> plan_greedy_by_size(std::span<Lifetime const> lifetimes, Size alignment,
                                        Stop const& stop);

}  // namespace allocbench

// planners/greedy.hpp: places each block once, in an order by size, lifetime or load.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "planners/planners.hpp"

namespace allocbench {

// Each plan is empty if `stop`, which is called periodically, returns true.

// The baseline of memory planning, as in Caffe: blocks are stacked in the order given, even if
// their lifetimes do not overlap. O(n) time.
std::optional<Plan> plan_no_reuse(std::span<Lifetime const> lifetimes, Size alignment,
                                  Stop const& stop);

// XLA's decreasing-size best fit. Blocks are sorted by size (largest first), then by lifetime
// (longest first), then in the order given. Each block takes the smallest gap that is large enough
// between the placed blocks whose lifetimes overlap its own (the lowest among equals) or, if there
// is none, the aligned end of the highest one. A gap extends from its aligned start to the block
// above. O(n^2) time. Source: GlobalDecreasingSizeBestFitHeap (spatial order, no colocated
// buffers) in XLA's heap_simulator.cc.
std::optional<Plan> plan_best_fit(std::span<Lifetime const> lifetimes, Size alignment,
                                  Stop const& stop);

// TFLite's current planner. Blocks that are always alive (from instant 0, never freed) come first,
// in the order given. The others follow by size (largest first), then by begin (earliest first),
// then in reverse of the order given. Each block takes the gap that leaves the fewest bytes between
// the placed blocks whose lifetimes overlap its own (the lowest among equals) or, if no gap is
// large enough, the aligned end of the highest one. As in TFLite, a gap is measured from its
// aligned start when it is compared with the best gap so far, but from its unaligned start once it
// is the best. Offsets are aligned; sizes are not rounded. O(n^2) time. Source: SimpleMemoryArena
// and ArenaPlanner of TensorFlow Lite; Pisarchyk and Lee, "Efficient Memory Management for Deep
// Neural Net Inference" (arXiv 2001.03288).
std::optional<Plan> plan_greedy_by_size(std::span<Lifetime const> lifetimes, Size alignment,
                                        Stop const& stop);

// Each attempt uses another order: by the size of the block, its lifetime, or a product of both,
// largest first. In some orders, blocks that are alive where the load is highest come first, as in
// the planner GreedyByBreadth of TensorFlow Lite (Pisarchyk and Lee, "Efficient Memory Management
// for Deep Neural Net Inference", 2020). Later attempts perturb the keys at random. A block takes
// the lowest gap that is large enough between the placed blocks whose lifetimes overlap its own.
// O(n^2) time.
std::optional<Plan> plan_reordered(std::span<Lifetime const> lifetimes, Size alignment,
                                   std::uint64_t attempt, Stop const& stop);

}  // namespace allocbench

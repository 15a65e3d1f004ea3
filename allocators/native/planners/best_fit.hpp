// planners/best_fit.hpp: the largest and longest block first, where least is left over.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "planners/plan.hpp"

namespace allocbench {

// XLA's decreasing-size best fit. Blocks come by size, largest first, then by lifetime, longest
// first, then in the order given. Each takes, among the blocks placed that are alive together with
// it, the smallest gap that holds it, the lowest among equals, or else the aligned end of the
// highest. A gap is as large as from its aligned start to the block above. O(n^2) steps.
// Source: GlobalDecreasingSizeBestFitHeap (spatial order, no colocated buffers) in XLA's
// heap_simulator.cc.
Plan plan_best_fit(std::span<Lifetime const> lifetimes, Size alignment);

}  // namespace allocbench

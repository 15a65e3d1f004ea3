// planners/best_fit.hpp: places blocks by size and lifetime, each in the tightest gap.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>

#include "planners/plan.hpp"

namespace allocbench {

// XLA's decreasing-size best fit. Blocks are sorted by size (largest first), then by lifetime
// (longest first), then in the order given. Each block takes the smallest gap that is large enough
// between the placed blocks whose lifetimes overlap its own (the lowest among equals) or, if there
// is none, the aligned end of the highest one. A gap extends from its aligned start to the block
// above. O(n^2) time. Source: GlobalDecreasingSizeBestFitHeap (spatial order, no colocated
// buffers) in XLA's heap_simulator.cc.
Plan plan_best_fit(std::span<Lifetime const> lifetimes, Size alignment);

// The same; empty if `stop` returned true.
std::optional<Plan> plan_best_fit(std::span<Lifetime const> lifetimes, Size alignment,
                                  Stop const& stop);

}  // namespace allocbench

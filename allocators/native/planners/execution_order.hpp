// planners/execution_order.hpp: offsets given in the order in which blocks come alive.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "planners/plan.hpp"

namespace allocbench {

// TFLite's planner of 2018: it plays the program through once and places each block when it comes
// alive (Gaps). At one instant, blocks that end make room before blocks that begin. Blocks that
// begin together are placed in the order given. O(n * blocks alive) steps. Throws SpecError for an
// alignment that is no power of two of at most 2 MiB.
Plan plan_in_execution_order(std::span<Lifetime const> lifetimes, Size alignment);

}  // namespace allocbench

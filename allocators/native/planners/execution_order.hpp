// planners/execution_order.hpp: places blocks in the order in which they become alive.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "planners/plan.hpp"

namespace allocbench {

// TFLite's planner of 2018: passes through the program once and places each block when it becomes
// alive (Gaps). At each instant, ending blocks are removed before new blocks are placed. Blocks
// that begin together are placed in the order given. O(n log n) time. Throws SpecError
// unless the alignment is a power of two of at most 2 MiB.
// Once `stop` returns true, the remaining blocks go on top of all others, without reuse.
Plan plan_in_execution_order(std::span<Lifetime const> lifetimes, Size alignment, Stop const& stop);
Plan plan_in_execution_order(std::span<Lifetime const> lifetimes, Size alignment);

}  // namespace allocbench

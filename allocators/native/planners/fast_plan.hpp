// planners/fast_plan.hpp: the lowest plan of the planners that place each block once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "planners/plan.hpp"

namespace allocbench {

// The lowest of the plans by execution order, from the peak, by size and by best fit, which are
// made in this order until one is at most `enough` bytes high. Once `stop` returns true, planners
// that have not finished are left out. If none has, the one by execution order stops to reuse
// memory.
Plan plan_fast(std::span<Lifetime const> lifetimes, Size alignment, Size enough, Stop const& stop);

}  // namespace allocbench

// planners/exact.hpp: searches for the lowest plan within a time limit, with a lower bound.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "planners/plan.hpp"

namespace allocbench {

struct Progress {
  double seconds;    // since the planner started
  Size height;       // of the lowest plan so far
  Size lower_bound;  // no plan can be lower
};

struct SearchBudget {
  double seconds = 10;  // time limit
  // Called about ten times per second; returning false stops the planner early.
  std::function<bool(Progress const&)> report = [](Progress const&) { return true; };
};

struct BoundedPlan {
  Plan plan;
  Size lower_bound = 0;  // no plan can be lower; if equal to the height, the plan is optimal
};

// Starts with the best plan of the other planners. Splits time into stretches with no block in
// common and searches those that are higher than the bound (Skyline), by several rules in turn and
// with growing node limits: first at the bound, then at heights between it and the best plan. A
// search that proves that there is no plan raises the bound. Stretches with too many blocks are
// planned in many different orders instead. Exceptions of `report` are passed on.
BoundedPlan plan_exact(std::span<Lifetime const> lifetimes, Size alignment,
                       SearchBudget const& budget = {});

}  // namespace allocbench

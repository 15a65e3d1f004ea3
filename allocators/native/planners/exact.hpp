// planners/exact.hpp: the lowest plan that can be found in a given time, and a bound.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "planners/plan.hpp"

namespace allocbench {

struct Progress {
  double seconds;    // since the planner began
  Size height;       // of the lowest plan so far
  Size lower_bound;  // no plan is lower
};

struct Effort {
  double seconds = 10;
  // Called about ten times a second; the planner stops early when it returns false.
  std::function<bool(Progress const&)> report = [](Progress const&) { return true; };
};

struct BoundedPlan {
  Plan plan;
  Size lower_bound = 0;  // no plan is lower; equal to the height: the plan is optimal
};

// Begins with the best plan of the other planners. What is higher than the bound is then searched
// (Skyline), in stretches of time that nothing connects, by several rules in turn and with ever
// more nodes: at the bound itself, then at heights between it and the best. A search that ends
// without a plan raises the bound. Stretches of too many blocks are planned in many orders instead.
// Throws whatever `report` throws.
BoundedPlan plan_exact(std::span<Lifetime const> lifetimes, Size alignment,
                       Effort const& effort = {});

}  // namespace allocbench

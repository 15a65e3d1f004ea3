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
  // Seconds since any fixed time. All searches ask it often, so a test can count and end them.
  std::function<double()> clock = monotonic;

  static double monotonic();
};

struct BoundedPlan {
  Plan plan;
  Size lower_bound = 0;  // no plan can be lower; if equal to the height, the plan is optimal
};

// Starts with the best plan of the fast planners and cuts the lifetimes into pieces. Those that are
// higher than the bound are searched in rounds of doubling effort: first at the bound, then at
// heights between it and the best plan. Each goal is tried by depth-first search with several rules
// (Skyline, LowestFirst) and by beam search with several rules (Beam). A depth-first search that
// proves that there is no plan raises the bound. Pieces with too many blocks are planned in many
// different orders instead. Each round ends with moves of the blocks that are in the way of a lower
// plan (Ejection). Exceptions of `report` and `clock` are passed on.
BoundedPlan plan_exact(std::span<Lifetime const> lifetimes, Size alignment,
                       SearchBudget const& budget = {});

}  // namespace allocbench

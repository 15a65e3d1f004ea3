// planners/fast_plan.cpp: the lowest plan of the planners that place each block once.
// SPDX-License-Identifier: Apache-2.0
#include "planners/fast_plan.hpp"

#include <optional>
#include <utility>

#include "planners/best_fit.hpp"
#include "planners/execution_order.hpp"
#include "planners/greedy_by_size.hpp"

namespace allocbench {

Plan plan_fast(std::span<Lifetime const> lifetimes, Size alignment, Stop const& stop) {
  using Planner = std::optional<Plan> (*)(std::span<Lifetime const>, Size, Stop const&);
  Plan best = plan_in_execution_order(lifetimes, alignment, stop);
  for (Planner const planner : {Planner{plan_greedy_by_size}, Planner{plan_best_fit}}) {
    if (stop()) break;
    if (auto plan = planner(lifetimes, alignment, stop); plan && plan->height < best.height)
      best = std::move(*plan);
  }
  return best;
}

}  // namespace allocbench

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
  std::optional<Plan> best = plan_greedy_by_size(lifetimes, alignment, stop);
  auto fitted = plan_best_fit(lifetimes, alignment, stop);
  if (fitted && (!best || fitted->height < best->height)) best = std::move(fitted);
  // Comes last, because it can take much longer than the others, but it always returns a plan.
  if (best && stop()) return std::move(*best);
  Plan plan = plan_in_execution_order(lifetimes, alignment, stop);
  return best && best->height <= plan.height ? std::move(*best) : plan;
}

}  // namespace allocbench

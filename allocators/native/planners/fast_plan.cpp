// planners/fast_plan.cpp: the lowest plan of the planners that place each block once.
// SPDX-License-Identifier: Apache-2.0
#include "planners/fast_plan.hpp"

#include <optional>
#include <utility>

#include "planners/best_fit.hpp"
#include "planners/execution_order.hpp"
#include "planners/from_peak.hpp"
#include "planners/greedy_by_size.hpp"

namespace allocbench {
namespace {

constexpr std::size_t kBlocksPerAttempt = 8192;  // of plan_from_peak

}  // namespace

Plan plan_fast(std::span<Lifetime const> lifetimes, Size alignment, Size enough, Stop const& stop) {
  Plan best = plan_in_execution_order(lifetimes, alignment, stop);
  auto const keep = [&](std::optional<Plan> plan) {
    if (plan && plan->height < best.height) best = std::move(*plan);
    return best.height <= enough || stop();
  };
  // The planners by size and by best fit take quadratic time.
  std::uint64_t const attempts = kPlainAttempts + lifetimes.size() / kBlocksPerAttempt;
  for (std::uint64_t attempt = 0; attempt < attempts; ++attempt)
    if (keep(plan_from_peak(lifetimes, alignment, attempt, stop))) return best;
  if (!keep(plan_greedy_by_size(lifetimes, alignment, stop)))
    keep(plan_best_fit(lifetimes, alignment, stop));
  return best;
}

}  // namespace allocbench

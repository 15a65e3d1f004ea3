// planners/no_reuse.cpp: places every block above the previous one.
// SPDX-License-Identifier: Apache-2.0
#include "planners/no_reuse.hpp"

namespace allocbench {

Plan plan_no_reuse(std::span<Lifetime const> lifetimes, Size alignment) {
  Plan plan;
  plan.offsets.reserve(lifetimes.size());
  for (Lifetime const& block : lifetimes) {
    plan.offsets.push_back(round_up(plan.height, alignment));
    plan.height = plan.offsets.back() + block.size;
  }
  return plan;
}

}  // namespace allocbench

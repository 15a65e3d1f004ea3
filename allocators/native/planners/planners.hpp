// planners/planners.hpp: planners by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "planners/exact.hpp"
#include "planners/plan.hpp"

namespace allocbench {

struct PlannerInfo {
  std::string_view name;
  std::string_view summary;
  std::string_view reference;
  BoundedPlan (*make)(std::span<Lifetime const>, Size alignment, SearchBudget const&);
};

// Sorted by name.
std::span<PlannerInfo const> planners();

// Throws SpecError for an unknown name and lists the valid ones.
PlannerInfo const& planner(std::string_view name);

// Throws SpecError for a block with no bytes or no lifetime, if the sizes add up to 2^62 or more,
// and for an alignment that is not a power of two. `budget` applies only to the exact planner.
BoundedPlan plan(std::string_view planner, std::span<Lifetime const> lifetimes, Size alignment,
                 SearchBudget const& budget = {});

}  // namespace allocbench

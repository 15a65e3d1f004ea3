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
  BoundedPlan (*make)(std::span<Lifetime const>, Size alignment, Effort const&);
};

// In order of name.
std::span<PlannerInfo const> planners();

// Throws SpecError for a name that does not exist, listing the valid ones.
PlannerInfo const& planner(std::string_view name);

// Throws SpecError for a block of no bytes or of no time, for sizes whose sum is 2^62 or more, and
// for an alignment that is no power of two. `effort` counts for the exact planner alone.
BoundedPlan plan(std::string_view planner, std::span<Lifetime const> lifetimes, Size alignment,
                 Effort const& effort = {});

}  // namespace allocbench

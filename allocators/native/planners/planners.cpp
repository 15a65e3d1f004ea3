// planners/planners.cpp: the list of planners. To add one, add its header and its entry here.
// SPDX-License-Identifier: Apache-2.0
#include "planners/planners.hpp"

#include <string>

#include "core/errors.hpp"
#include "planners/greedy.hpp"
#include "planners/plan.hpp"
#include "planners/time_order.hpp"

namespace allocbench {
namespace {

constexpr Size kMostBytes = Size{1} << 62;  // limit for all blocks together; avoids overflow

template <Plan (*make)(std::span<Lifetime const>, Size)>
BoundedPlan bounded(std::span<Lifetime const> lifetimes, Size alignment, SearchBudget const&) {
  return {make(lifetimes, alignment), least_height(lifetimes, alignment)};
}

constexpr PlannerInfo kPlanners[] = {
    {"best_fit", "largest and longest-lived block first, in the tightest gap",
     "GlobalDecreasingSizeBestFitHeap of XLA", bounded<plan_best_fit>},
    {"exact", "searches for the lowest plan; proves it optimal or gives a lower bound",
     "after MiniMalloc (Moffitt, ASPLOS 2023)", plan_exact},
    {"execution_order", "blocks in the order of their allocation, in the tightest gap",
     "ArenaPlanner of TensorFlow Lite in 2018", bounded<plan_in_execution_order>},
    {"greedy_by_size", "largest block first, in the tightest gap",
     "ArenaPlanner of TensorFlow Lite today", bounded<plan_greedy_by_size>},
    {"no_reuse", "no two blocks share memory", "Caffe", bounded<plan_no_reuse>},
};

void check(std::span<Lifetime const> lifetimes, Size alignment) {
  check_alignment(alignment);
  Size sum = 0;
  for (std::size_t block = 0; block < lifetimes.size(); ++block) {
    auto const [size, first, last] = lifetimes[block];
    if (size == 0 || first >= last)
      throw SpecError("block " + std::to_string(block) +
                      ": a block must have at least 1 byte and must end after it begins");
    if (size >= kMostBytes || (sum += round_up(size, alignment)) >= kMostBytes)
      throw SpecError("plan: the sizes of all blocks, rounded up, add up to 2^62 bytes or more");
  }
}

}  // namespace

std::span<PlannerInfo const> planners() { return kPlanners; }

PlannerInfo const& planner(std::string_view name) {
  for (PlannerInfo const& info : kPlanners)
    if (info.name == name) return info;
  std::string valid;
  for (PlannerInfo const& info : kPlanners)
    valid.append(valid.empty() ? "" : ", ").append(info.name);
  throw SpecError("no planner is called '" + std::string(name) + "'; valid names: " + valid);
}

BoundedPlan plan(std::string_view name, std::span<Lifetime const> lifetimes, Size alignment,
                 SearchBudget const& budget) {
  auto const make = planner(name).make;
  check(lifetimes, alignment);
  return make(lifetimes, alignment, budget);
}

}  // namespace allocbench

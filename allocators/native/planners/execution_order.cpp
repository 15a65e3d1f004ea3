// planners/execution_order.cpp: places blocks in the order in which they become alive.
// SPDX-License-Identifier: Apache-2.0
#include "planners/execution_order.hpp"

#include <algorithm>
#include <numeric>

#include "planners/gaps.hpp"

namespace allocbench {

Plan plan_in_execution_order(std::span<Lifetime const> lifetimes, Size alignment) {
  check_alignment(alignment);
  std::vector<std::uint32_t> begins(lifetimes.size());
  std::iota(begins.begin(), begins.end(), 0u);
  auto ends = begins;
  std::ranges::stable_sort(begins, {}, [&](auto block) { return lifetimes[block].first; });
  std::ranges::stable_sort(ends, {}, [&](auto block) { return lifetimes[block].last; });

  Gaps gaps;
  Plan plan{std::vector<Size>(lifetimes.size()), 0};
  auto ending = ends.begin();
  for (std::uint32_t const block : begins) {
    for (; lifetimes[*ending].last <= lifetimes[block].first; ++ending)
      gaps.remove(plan.offsets[*ending], lifetimes[*ending].size);
    plan.offsets[block] = gaps.place(lifetimes[block].size, alignment);
  }
  plan.height = gaps.high_water_mark();
  return plan;
}

}  // namespace allocbench

// planners/execution_order.cpp: places blocks in the order in which they become alive.
// SPDX-License-Identifier: Apache-2.0
#include "planners/execution_order.hpp"

#include <algorithm>
#include <numeric>

#include "planners/gaps.hpp"

namespace allocbench {

Plan plan_in_execution_order(std::span<Lifetime const> lifetimes, Size alignment) {
  return plan_in_execution_order(lifetimes, alignment, [] { return false; });
}

Plan plan_in_execution_order(std::span<Lifetime const> lifetimes, Size alignment,
                             Stop const& stop) {
  check_alignment(alignment);
  std::vector<std::uint32_t> begins(lifetimes.size());
  std::iota(begins.begin(), begins.end(), 0u);
  auto ends = begins;
  std::ranges::stable_sort(begins, {}, [&](auto block) { return lifetimes[block].first; });
  std::ranges::stable_sort(ends, {}, [&](auto block) { return lifetimes[block].last; });

  Gaps gaps;
  Plan plan{std::vector<Size>(lifetimes.size()), 0};
  std::size_t done = 0;
  bool stopped = false;
  auto ending = ends.begin();
  for (std::uint32_t const block : begins) {
    for (; lifetimes[*ending].last <= lifetimes[block].first; ++ending)
      gaps.remove(plan.offsets[*ending], lifetimes[*ending].size);
    stopped = stopped || (++done % kBlocksBetweenStops == 0 && stop());
    Size const size = lifetimes[block].size;
    plan.offsets[block] =
        stopped ? gaps.place_on_top(size, alignment) : gaps.place(size, alignment);
  }
  plan.height = gaps.high_water_mark();
  return plan;
}

}  // namespace allocbench

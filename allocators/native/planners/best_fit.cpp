// planners/best_fit.cpp: places blocks by size and lifetime, each in the tightest gap.
// SPDX-License-Identifier: Apache-2.0
#include "planners/best_fit.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>

#include "planners/placed_blocks.hpp"

namespace allocbench {
namespace {

Size place_tightly(PlacedBlocks const& placed, Lifetime const& block, Size alignment) {
  std::optional<Size> best;
  Size smallest = 0;  // size of the best gap in bytes
  placed.gaps(block, [&](Size offset, Size end) {
    Size const start = round_up(offset, alignment);
    if (start + block.size > end || (best && end - start >= smallest)) return;
    best = start;
    smallest = end - start;
  });
  return *best;
}

}  // namespace

Plan plan_best_fit(std::span<Lifetime const> lifetimes, Size alignment) {
  return *plan_best_fit(lifetimes, alignment, [] { return false; });
}

std::optional<Plan> plan_best_fit(std::span<Lifetime const> lifetimes, Size alignment,
                                  Stop const& stop) {
  std::vector<std::uint32_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, [&](auto a, auto b) {
    auto const length = [](Lifetime const& block) { return block.last - block.first; };
    return std::tuple(lifetimes[b].size, length(lifetimes[b])) <
           std::tuple(lifetimes[a].size, length(lifetimes[a]));
  });

  PlacedBlocks placed(lifetimes);
  Plan plan{std::vector<Size>(lifetimes.size()), 0};
  std::size_t done = 0;
  for (std::uint32_t const block : order) {
    if (++done % kBlocksBetweenStops == 0 && stop()) return {};
    plan.offsets[block] = place_tightly(placed, lifetimes[block], alignment);
    placed.add(lifetimes[block], plan.offsets[block]);
  }
  plan.height = placed.height();
  return plan;
}

}  // namespace allocbench

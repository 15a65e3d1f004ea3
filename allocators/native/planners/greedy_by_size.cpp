// planners/greedy_by_size.cpp: places the largest block first, each in the tightest gap.
// SPDX-License-Identifier: Apache-2.0
#include "planners/greedy_by_size.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>

#include "planners/placed_blocks.hpp"

namespace allocbench {
namespace {

Size place_tightly(PlacedBlocks const& placed, Lifetime const& block, Size alignment) {
  std::optional<Size> best;
  Size smallest = 0;  // distance between the blocks around the best gap
  placed.gaps(block, [&](Size offset, Size end) {
    Size const start = round_up(offset, alignment);
    if (start + block.size > end || (best && end - start >= smallest)) return;
    best = start;
    smallest = end - offset;
  });
  return *best;
}

}  // namespace

Plan plan_greedy_by_size(std::span<Lifetime const> lifetimes, Size alignment) {
  return *plan_greedy_by_size(lifetimes, alignment, [] { return false; });
}

std::optional<Plan> plan_greedy_by_size(std::span<Lifetime const> lifetimes, Size alignment,
                                        Stop const& stop) {
  using Block = std::uint32_t;
  std::vector<Block> order(lifetimes.size());
  std::iota(order.begin(), order.end(), Block{0});
  auto const rest = std::ranges::stable_partition(order, [&](Block block) {
    return lifetimes[block].first == 0 && lifetimes[block].last == kForever;
  });
  std::ranges::sort(rest, [&](Block a, Block b) {
    Lifetime const &left = lifetimes[a], &right = lifetimes[b];
    return std::tie(right.size, left.first, b) < std::tie(left.size, right.first, a);
  });

  PlacedBlocks placed(lifetimes);
  Plan plan{std::vector<Size>(lifetimes.size()), 0};
  std::size_t done = 0;
  for (Block const block : order) {
    if (++done % kBlocksBetweenStops == 0 && stop()) return {};
    plan.offsets[block] = place_tightly(placed, lifetimes[block], alignment);
    placed.add(lifetimes[block], plan.offsets[block]);
  }
  plan.height = placed.height();
  return plan;
}

}  // namespace allocbench

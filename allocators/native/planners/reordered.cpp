// planners/reordered.cpp: places blocks in one of many orders, each as low as possible.
// SPDX-License-Identifier: Apache-2.0
#include "planners/reordered.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "planners/placed_blocks.hpp"

namespace allocbench {
namespace {

constexpr double kExponents[] = {1.0, 0.0, 0.5, 0.75};  // of the lifetime in the sort key

Size place_lowest(PlacedBlocks const& placed, Lifetime const& block, Size alignment) {
  std::optional<Size> lowest;
  Size start = 0;  // aligned end of the blocks visited so far
  placed.alive_with(block, [&](Size offset, Size end) {
    if (!lowest && start + block.size <= offset) lowest = start;
    start = std::max(start, round_up(end, alignment));
  });
  return lowest.value_or(start);
}

}  // namespace

std::optional<Plan> plan_reordered(std::span<Lifetime const> lifetimes, Size alignment,
                                   std::uint64_t attempt, Stop const& stop) {
  auto const exponent = kExponents[attempt % std::size(kExponents)];
  std::mt19937_64 random(attempt);
  std::vector<double> keys;
  for (auto const& [size, first, last] : lifetimes) {
    keys.push_back(static_cast<double>(size) * std::pow(last - first, exponent));
    if (attempt >= std::size(kExponents))
      keys.back() *= 1 + static_cast<double>(random() % 1024) / 4096;
  }
  std::vector<std::uint32_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, std::greater{}, [&](auto block) { return keys[block]; });

  PlacedBlocks placed(lifetimes);
  Plan plan{std::vector<Size>(lifetimes.size()), 0};
  std::size_t done = 0;
  for (std::uint32_t const block : order) {
    if (++done % kBlocksBetweenStops == 0 && stop()) return {};
    plan.offsets[block] = place_lowest(placed, lifetimes[block], alignment);
    placed.add(lifetimes[block], plan.offsets[block]);
  }
  plan.height = placed.height();
  return plan;
}

}  // namespace allocbench

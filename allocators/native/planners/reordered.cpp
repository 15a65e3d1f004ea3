// planners/reordered.cpp: places blocks in one of many orders, each as low as possible.
// SPDX-License-Identifier: Apache-2.0
#include "planners/reordered.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "planners/load.hpp"
#include "planners/placed_blocks.hpp"

namespace allocbench {
namespace {

struct Rule {
  bool hottest_first;   // blocks are sorted by their peak load first
  double bytes, alive;  // exponents of the size and of the lifetime in the sort key
};
constexpr Rule kRules[] = {{true, 1, 0}, {false, 1, 0},    {true, 1, 1}, {false, 1, 0.5},
                           {true, 0, 1}, {false, 1, 0.75}, {false, 1, 1}};

Size place_lowest(PlacedBlocks const& placed, Lifetime const& block, Size alignment) {
  std::optional<Size> lowest;
  placed.gaps(block, [&](Size offset, Size end) {
    Size const start = round_up(offset, alignment);
    if (!lowest && start + block.size <= end) lowest = start;
  });
  return *lowest;
}

}  // namespace

std::optional<Plan> plan_reordered(std::span<Lifetime const> lifetimes, Size alignment,
                                   std::uint64_t attempt, Stop const& stop) {
  Rule const& rule = kRules[attempt % std::size(kRules)];
  std::mt19937_64 random(attempt);
  std::vector<double> keys;
  for (auto const& [size, first, last] : lifetimes) {
    keys.push_back(std::pow(size, rule.bytes) * std::pow(last - first, rule.alive));
    if (attempt >= std::size(kRules))
      keys.back() *= 1 + static_cast<double>(random() % 1024) / 4096;
  }
  if (stop()) return {};
  auto const peaks = rule.hottest_first ? peak_loads(lifetimes) : std::vector<Size>(keys.size());
  if (stop()) return {};
  std::vector<std::uint32_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, std::greater{},
                           [&](auto block) { return std::pair(peaks[block], keys[block]); });

  if (stop()) return {};
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

// planners/greedy.cpp: places each block once, in an order by size, lifetime or load.
// SPDX-License-Identifier: Apache-2.0
#include "planners/greedy.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "planners/placed_blocks.hpp"

namespace allocbench {
namespace {

using Order = std::vector<std::uint32_t>;

// The gap that a block takes among those that are large enough. The tightest one is that with the
// fewest bytes, and the lowest among equals. kTightest compares the bytes above the aligned start
// of each gap; kTightestAsTflite compares them with all bytes of the best gap so far.
enum class Gap { kTightest, kTightestAsTflite, kLowest };

Size place(PlacedBlocks const& placed, Lifetime const& block, Size alignment, Gap gap) {
  std::optional<Size> best;
  Size smallest = 0;  // bytes of the best gap
  placed.gaps(block, [&](Size offset, Size end) {
    Size const start = round_up(offset, alignment);
    if (start + block.size > end || (best && (gap == Gap::kLowest || end - start >= smallest)))
      return;
    best = start;
    smallest = end - (gap == Gap::kTightestAsTflite ? offset : start);
  });
  return *best;
}

// Empty if `stop` returned true.
std::optional<Plan> place_in(Order const& order, std::span<Lifetime const> lifetimes,
                             Size alignment, Gap gap, Stop const& stop) {
  PlacedBlocks placed(lifetimes);
  Plan plan{std::vector<Size>(lifetimes.size()), 0};
  std::size_t done = 0;
  for (std::uint32_t const block : order) {
    if (++done % kBlocksBetweenStops == 0 && stop()) return {};
    plan.offsets[block] = place(placed, lifetimes[block], alignment, gap);
    placed.add(lifetimes[block], plan.offsets[block]);
  }
  plan.height = placed.height();
  return plan;
}

Order as_given(std::size_t blocks) {
  Order order(blocks);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

struct Rule {
  bool hottest_first;   // blocks are sorted by their peak load first
  double bytes, alive;  // exponents of the size and of the lifetime in the sort key
};
constexpr Rule kRules[] = {{true, 1, 0}, {false, 1, 0},    {true, 1, 1}, {false, 1, 0.5},
                           {true, 0, 1}, {false, 1, 0.75}, {false, 1, 1}};

}  // namespace

std::optional<Plan> plan_no_reuse(std::span<Lifetime const> lifetimes, Size alignment,
                                  Stop const&) {
  Plan plan;
  plan.offsets.reserve(lifetimes.size());
  for (Lifetime const& block : lifetimes) {
    plan.offsets.push_back(round_up(plan.height, alignment));
    plan.height = plan.offsets.back() + block.size;
  }
  return plan;
}

std::optional<Plan> plan_best_fit(std::span<Lifetime const> lifetimes, Size alignment,
                                  Stop const& stop) {
  Order order = as_given(lifetimes.size());
  std::ranges::stable_sort(order, std::greater{}, [&](auto block) {
    return std::pair(lifetimes[block].size, lifetimes[block].last - lifetimes[block].first);
  });
  return place_in(order, lifetimes, alignment, Gap::kTightest, stop);
}

std::optional<Plan> plan_greedy_by_size(std::span<Lifetime const> lifetimes, Size alignment,
                                        Stop const& stop) {
  Order order = as_given(lifetimes.size());
  auto const rest = std::ranges::stable_partition(order, [&](auto block) {
    return lifetimes[block].first == 0 && lifetimes[block].last == kForever;
  });
  std::ranges::sort(rest, [&](auto a, auto b) {
    Lifetime const &left = lifetimes[a], &right = lifetimes[b];
    return std::tie(right.size, left.first, b) < std::tie(left.size, right.first, a);
  });
  return place_in(order, lifetimes, alignment, Gap::kTightestAsTflite, stop);
}

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
  Order order = as_given(lifetimes.size());
  std::ranges::stable_sort(order, std::greater{},
                           [&](auto block) { return std::pair(peaks[block], keys[block]); });
  if (stop()) return {};
  return place_in(order, lifetimes, alignment, Gap::kLowest, stop);
}

}  // namespace allocbench

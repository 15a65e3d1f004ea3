// planners/planners.cpp: the list of planners. To add one, add its header and its entry here.
// SPDX-License-Identifier: Apache-2.0
#include "planners/planners.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "core/errors.hpp"
#include "planners/fast_planners.hpp"

namespace allocbench {
namespace {

constexpr Size kMostBytes = Size{1} << 62;  // limit for all blocks together; avoids overflow

template <auto make>
BoundedPlan bounded(std::span<Lifetime const> lifetimes, Size alignment, SearchBudget const&) {
  return {*make(lifetimes, alignment, [] { return false; }), least_height(lifetimes, alignment)};
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

// Calls `begin` and `end` for each lifetime in time order, ends before begins.
template <class Begin, class End>
void sweep(std::span<Lifetime const> lifetimes, Begin begin, End end) {
  auto const ends = sorted_by(&Lifetime::last, lifetimes);
  auto ending = ends.begin();
  for (std::uint32_t const block : sorted_by(&Lifetime::first, lifetimes)) {
    for (; lifetimes[*ending].last <= lifetimes[block].first; ++ending) end(lifetimes[*ending]);
    begin(lifetimes[block]);
  }
}

}  // namespace

std::vector<std::uint32_t> sorted_by(std::uint32_t Lifetime::* instant,
                                     std::span<Lifetime const> lifetimes) {
  std::vector<std::uint32_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, {}, [&](auto block) { return lifetimes[block].*instant; });
  return order;
}

Size max_load(std::span<Lifetime const> lifetimes) { return least_height(lifetimes, 1); }

Size least_height(std::span<Lifetime const> lifetimes, Size alignment) {
  Size load = 0, least = 0;
  std::multiset<Size> rounding;  // bytes that rounding adds to each live block
  auto const rounded = [&](Lifetime const& block) { return round_up(block.size, alignment); };
  bool const any = std::ranges::any_of(
      lifetimes, [&](Lifetime const& block) { return rounded(block) != block.size; });
  sweep(
      lifetimes,
      [&](Lifetime const& block) {
        load += rounded(block);
        if (any) rounding.insert(rounded(block) - block.size);
        least = std::max(least, load - (any ? *rounding.rbegin() : 0));
      },
      [&](Lifetime const& block) {
        load -= rounded(block);
        if (any) rounding.erase(rounding.find(rounded(block) - block.size));
      });
  return least;
}

std::vector<Size> peak_loads(std::span<Lifetime const> lifetimes) {
  std::vector<std::uint32_t> begins;  // of blocks, in ascending order; the load rises only there
  std::vector<std::vector<Size>> highest(1);  // [k][i]: from the i-th begin, of 2^k begins
  Size load = 0;
  sweep(
      lifetimes,
      [&](Lifetime const& block) {
        begins.push_back(block.first);
        highest[0].push_back(load += block.size);
      },
      [&](Lifetime const& block) { load -= block.size; });
  for (std::size_t width = 1; 2 * width <= begins.size(); width *= 2) {
    auto const& half = highest.back();
    std::vector<Size> whole;
    whole.reserve(half.size());
    for (std::size_t i = 0; i + width < half.size(); ++i)
      whole.push_back(std::max(half[i], half[i + width]));
    highest.push_back(std::move(whole));
  }
  std::vector<Size> peaks;
  for (auto const& [size, first, last] : lifetimes) {
    // The load at an instant is that after its last begin.
    auto const lo = std::ranges::upper_bound(begins, first) - begins.begin() - 1;
    auto const hi = std::ranges::lower_bound(begins, last) - begins.begin();
    auto const level = std::bit_width(static_cast<std::uint64_t>(hi - lo)) - 1;
    peaks.push_back(
        std::max(highest[level][lo], highest[level][hi - (std::ptrdiff_t{1} << level)]));
  }
  return peaks;
}

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

// planners/from_peak.cpp: places blocks from the instant of the highest load outwards.
// SPDX-License-Identifier: Apache-2.0
#include "planners/from_peak.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>
#include <random>
#include <ranges>
#include <utility>
#include <vector>

#include "planners/gaps.hpp"

namespace allocbench {
namespace {

constexpr double kLongest = 0x1p34;  // more than twice any time

using Order = std::vector<std::uint32_t>;

// How to stack blocks that are alive for a time before the peak and for a time after it, both
// multiplied by a weight.
struct Rule {
  enum class Key {
    kSum,      // the larger the sum of both, the lower
    kShorter,  // the larger the smaller of both, the lower
    // Blocks that end first are at the top, those that begin last at the bottom, and those alive
    // for long in both directions between them. So what the former leave after the peak is one
    // range, and what the latter leave before it is another one.
    kBothEnds,
  };
  Key key;
  double before, after;  // weights
  double noise;          // at most this part is added at random
};
using Key = Rule::Key;
constexpr Rule kRules[kPlainAttempts] = {{Key::kBothEnds, 1, 1, 0},
                                         {Key::kSum, 1, 0, 0},
                                         {Key::kSum, 0, 1, 0},
                                         {Key::kSum, 1, 1, 0},
                                         {Key::kShorter, 1, 1, 0}};

Rule rule_of(std::uint64_t attempt, std::mt19937_64& random) {
  if (attempt < kPlainAttempts) return kRules[attempt];
  auto const part = [&] { return static_cast<double>(random() % 1024) / 1024; };
  double const angle = part() * std::numbers::pi / 2;
  auto const key = static_cast<Key>(random() % 3);
  return {key, std::cos(angle), std::sin(angle), part() / 4};
}

// The larger it is, the lower the block.
double key_of(Key key, double before, double after) {
  switch (key) {
    case Key::kSum:
      return before + after;
    case Key::kShorter:
      return std::min(before, after);
    case Key::kBothEnds:
      return after < before ? after : kLongest - before;
  }
  return 0;
}

class Planner {
 public:
  Planner(std::span<Lifetime const> lifetimes, Size alignment, Stop const& stop)
      : lifetimes_(lifetimes), alignment_(alignment), stop_(stop), begins_(lifetimes.size()) {
    std::iota(begins_.begin(), begins_.end(), 0u);
    ends_ = begins_;
    std::ranges::stable_sort(begins_, {}, [&](auto block) { return lifetimes[block].first; });
    std::ranges::stable_sort(ends_, {}, [&](auto block) { return lifetimes[block].last; });
    plan_.offsets.resize(lifetimes.size());
    find_peak();
  }

  std::optional<Plan> run(std::uint64_t attempt) {
    Gaps after;
    for (std::uint32_t const block : stacked(attempt))
      if (!place(after, block)) return {};
    Gaps before = after;

    auto ending = std::ranges::find_if(ends_, [&](auto block) { return ends_late(block); });
    for (std::uint32_t const block :
         begins_ | std::views::filter([&](auto other) { return !begins_early(other); })) {
      for (; lifetimes_[*ending].last <= lifetimes_[block].first; ++ending) remove(after, *ending);
      if (!place(after, block)) return {};
    }
    auto const backwards = begins_ | std::views::reverse;
    auto begun = std::ranges::find_if(backwards, [&](auto block) { return begins_early(block); });
    for (std::uint32_t const block :
         ends_ | std::views::reverse |
             std::views::filter([&](auto other) { return !ends_late(other); })) {
      for (; lifetimes_[*begun].first >= lifetimes_[block].last; ++begun) remove(before, *begun);
      if (!place(before, block)) return {};
    }
    plan_.height = std::max(after.high_water_mark(), before.high_water_mark());
    return std::move(plan_);
  }

 private:
  void find_peak() {
    Size load = 0, highest = 0;
    auto ending = ends_.begin();
    for (std::uint32_t const block : begins_) {
      for (; lifetimes_[*ending].last <= lifetimes_[block].first; ++ending)
        load -= round_up(lifetimes_[*ending].size, alignment_);
      load += round_up(lifetimes_[block].size, alignment_);
      if (load <= highest) continue;
      highest = load;
      peak_ = lifetimes_[block].first;
    }
  }

  bool begins_early(std::uint32_t block) const { return lifetimes_[block].first <= peak_; }
  bool ends_late(std::uint32_t block) const { return lifetimes_[block].last > peak_; }

  // The blocks alive at the peak, from the bottom up.
  Order stacked(std::uint64_t attempt) const {
    std::mt19937_64 random(attempt);
    Rule const rule = rule_of(attempt, random);
    std::vector<std::pair<double, std::uint32_t>> keys;
    for (std::uint32_t const block : begins_) {
      if (!begins_early(block) || !ends_late(block)) continue;
      double const before = rule.before * (peak_ - lifetimes_[block].first + 1);
      double const after = rule.after * (lifetimes_[block].last - peak_);
      double const noise = rule.noise * static_cast<double>(random() % 1024) / 1024;
      keys.emplace_back(key_of(rule.key, before * (1 + noise), after * (1 + noise)), block);
    }
    std::ranges::stable_sort(keys, std::greater{}, [](auto const& key) { return key.first; });
    Order order;
    for (auto const& [key, block] : keys) order.push_back(block);
    return order;
  }

  // Returns false if there is no more time.
  bool place(Gaps& gaps, std::uint32_t block) {
    plan_.offsets[block] = gaps.place(lifetimes_[block].size, alignment_);
    return ++placed_ % kBlocksBetweenStops != 0 || !stop_();
  }
  void remove(Gaps& gaps, std::uint32_t block) {
    gaps.remove(plan_.offsets[block], lifetimes_[block].size);
  }

  std::span<Lifetime const> lifetimes_;
  Size alignment_;
  Stop const& stop_;
  Order begins_, ends_;  // blocks in the order of their begin and end
  std::uint32_t peak_ = 0;
  std::size_t placed_ = 0;
  Plan plan_;
};

}  // namespace

std::optional<Plan> plan_from_peak(std::span<Lifetime const> lifetimes, Size alignment,
                                   std::uint64_t attempt, Stop const& stop) {
  check_alignment(alignment);
  return Planner(lifetimes, alignment, stop).run(attempt);
}

}  // namespace allocbench

// planners/exact.cpp: searches for the lowest plan within a time limit, with a lower bound.
// SPDX-License-Identifier: Apache-2.0
#include "planners/exact.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>
#include <vector>

#include "planners/best_fit.hpp"
#include "planners/execution_order.hpp"
#include "planners/greedy_by_size.hpp"
#include "planners/load.hpp"
#include "planners/reordered.hpp"
#include "planners/skyline.hpp"

namespace allocbench {
namespace {

using Clock = std::chrono::steady_clock;
using Answer = Skyline::Answer;
using Rule = Skyline::Rule;

constexpr std::uint64_t kFirstNodes = 1000;  // node limit of the first search
constexpr std::uint64_t kNodeFactor = 4;     // by which the limit grows every second round
constexpr double kSecondsBetweenReports = 0.1;
constexpr Size kFinest = 1024;             // stops within 1/1024 of the best height
constexpr std::size_t kMostBlocks = 8192;  // of a searched stretch, to limit the recursion

constexpr Rule::Sections kSections[] = {Rule::Sections::kFewestBranches, Rule::Sections::kLowest};
constexpr Rule::Blocks kBlocks[] = {Rule::Blocks::kLongest, Rule::Blocks::kLargest,
                                    Rule::Blocks::kMostBytesTime, Rule::Blocks::kHighestLoad};

// A stretch of time whose blocks overlap no block of another stretch.
class Stretch {
 public:
  Stretch(std::vector<std::uint32_t> blocks, std::span<Lifetime const> all,
          std::span<Size const> offsets, Size alignment)
      : blocks_(std::move(blocks)), alignment_(alignment) {
    for (auto const block : blocks_) {
      lifetimes_.push_back(all[block]);
      offsets_.push_back(offsets[block]);
      height_ = std::max(height_, offsets[block] + all[block].size);
      unit_ = std::gcd(unit_, round_up(all[block].size, alignment));
    }
    Size const least = least_height(lifetimes_, alignment);
    lower_bound_ = height_after(least - 1);
  }

  Size height() const { return height_; }
  Size lower_bound() const { return lower_bound_; }

  void write_to(std::vector<Size>& offsets) const {
    for (std::size_t i = 0; i < blocks_.size(); ++i) offsets[blocks_[i]] = offsets_[i];
  }

  // Searches for a lower plan, but not below `enough`, a lower bound of the whole plan.
  void improve(int round, Size enough, std::function<bool()> const& stop) {
    if (lifetimes_.size() > kMostBlocks) {
      auto const attempt = static_cast<std::uint64_t>(round);
      auto plan = plan_reordered(lifetimes_, alignment_, attempt, stop);
      if (plan && plan->height < height_) keep(std::move(plan->offsets));
      return;
    }
    Skyline search(lifetimes_, alignment_);
    for (Size goal = std::max(lower_bound_, enough); goal < height_ && !stop();) {
      Answer const answer = attempt(search, goal, round, stop);
      if (answer == Answer::kNone) lower_bound_ = std::max(lower_bound_, height_after(goal));
      if (answer == Answer::kFound && goal <= std::max(lower_bound_, enough)) return;
      if (answer != Answer::kFound) failed_goal_ = goal;
      if (answer != Answer::kNone && height_ - failed_goal_ <= height_ / kFinest) return;
      goal = answer == Answer::kNone ? std::max(lower_bound_, enough)
                                     : failed_goal_ + (height_ - failed_goal_) / 2;
    }
  }

 private:
  Answer attempt(Skyline& search, Size goal, int round, std::function<bool()> const& stop) {
    std::uint64_t nodes = kFirstNodes + 2 * lifetimes_.size();
    for (int i = 0; i < round; i += 2) nodes *= kNodeFactor;
    auto const seed = static_cast<std::uint64_t>(round % 2 == 0 ? 0 : round);
    for (auto const blocks : kBlocks)
      for (auto const sections : kSections) {
        Answer const answer = search.fit(goal, {sections, blocks, seed}, nodes, stop);
        if (answer == Answer::kFound) keep(search.offsets());
        if (answer != Answer::kUnknown || stop()) return answer;
      }
    return Answer::kUnknown;
  }

  void keep(std::vector<Size> offsets) {
    offsets_ = std::move(offsets);
    height_ = 0;
    for (std::size_t block = 0; block < offsets_.size(); ++block)
      height_ = std::max(height_, offsets_[block] + lifetimes_[block].size);
  }

  // The smallest height above `height` that a plan can have, given that offsets are sums of rounded
  // sizes.
  Size height_after(Size height) const {
    Size next = ~Size{0};
    for (Lifetime const& block : lifetimes_) {
      Size const offset = height < block.size ? 0 : round_down(height - block.size, unit_) + unit_;
      next = std::min(next, offset + block.size);
    }
    return next;
  }

  std::vector<std::uint32_t> blocks_;
  std::vector<Lifetime> lifetimes_;
  std::vector<Size> offsets_;
  Size alignment_;
  Size unit_ = 0;  // offsets are multiples of it
  Size height_ = 0, lower_bound_ = 0;
  Size failed_goal_ = 0;  // the highest goal for which no plan was found
};

std::vector<Stretch> split(std::span<Lifetime const> lifetimes, Plan const& plan, Size alignment) {
  std::vector<std::uint32_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, {}, [&](auto block) { return lifetimes[block].first; });
  std::vector<Stretch> stretches;
  std::vector<std::uint32_t> blocks;
  std::uint32_t end = 0;
  for (std::uint32_t const block : order) {
    if (!blocks.empty() && lifetimes[block].first >= end)
      stretches.emplace_back(std::exchange(blocks, {}), lifetimes, plan.offsets, alignment);
    end = std::max(end, lifetimes[block].last);
    blocks.push_back(block);
  }
  if (!blocks.empty()) stretches.emplace_back(blocks, lifetimes, plan.offsets, alignment);
  return stretches;
}

// The lowest plan of the fast planners.
Plan first_plan(std::span<Lifetime const> lifetimes, Size alignment) {
  Plan best = plan_in_execution_order(lifetimes, alignment);
  for (auto const planner : {plan_greedy_by_size, plan_best_fit})
    if (Plan plan = planner(lifetimes, alignment); plan.height < best.height)
      best = std::move(plan);
  return best;
}

}  // namespace

BoundedPlan plan_exact(std::span<Lifetime const> lifetimes, Size alignment,
                       SearchBudget const& budget) {
  auto const start = Clock::now();
  Plan plan = first_plan(lifetimes, alignment);
  auto stretches = split(lifetimes, plan, alignment);
  auto const height = [&] { return std::ranges::max(stretches, {}, &Stretch::height).height(); };
  auto const lower_bound = [&] {
    return std::ranges::max(stretches, {}, &Stretch::lower_bound).lower_bound();
  };
  if (stretches.empty()) return {};

  double reported = 0;
  bool stopped = false;
  std::function<bool()> const stop = [&] {
    double const seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (seconds - reported >= kSecondsBetweenReports) {
      reported = seconds;
      stopped = stopped || !budget.report({seconds, height(), lower_bound()});
    }
    return stopped = stopped || seconds >= budget.seconds;
  };
  for (int round = 0; height() > lower_bound() && !stop(); ++round) {
    for (Stretch& stretch : stretches)
      if (stretch.height() > lower_bound() && !stop()) stretch.improve(round, lower_bound(), stop);
  }
  for (Stretch const& stretch : stretches) stretch.write_to(plan.offsets);
  plan.height = height();
  return {std::move(plan), lower_bound()};
}

}  // namespace allocbench

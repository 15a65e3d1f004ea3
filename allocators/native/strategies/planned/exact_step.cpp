// strategies/planned/exact_step.cpp: plans a step that is expected to repeat exactly.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/planned/exact_step.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "strategies/planned/periodic.hpp"

namespace allocbench {
namespace {

constexpr Size kWaste = 128;            // a plan that wastes 1/128 of the load is good enough
constexpr std::uint64_t kSearches = 3;  // what a plan costs at most, in searches for places
constexpr Size kNothing = ~Size{0};

std::uint64_t hash_of(std::vector<ExactStep::Tail> const& tails) {
  Hash hash;
  for (ExactStep::Tail const& tail : tails)
    for (std::uint64_t const value : {tail.size, tail.offset, std::uint64_t{tail.last}})
      hash.add(value);
  return hash.value();
}

}  // namespace

ExactStep::ExactStep(StepKind::Step const& step)
    : sizes_(step.size()), large_(step.large().begin(), step.large().end()), ends_(step.size()) {
  std::ranges::transform(step.requests(), sizes_.begin(), &StepKind::Observed::size);
}

bool ExactStep::begins_with(StepKind::Step const& step) const {
  if (step.size() > size()) return false;
  for (std::size_t number = 0; number < step.size(); ++number)
    if (step[number].size != sizes_[number]) return false;
  return true;
}

bool ExactStep::alike(StepKind::Step const& step) const {
  if (step.size() != size() || !begins_with(step)) return false;
  std::size_t known = 0, same = 0;
  for (std::uint32_t const number : large_) {
    StepKind::End const& end = ends_[number].end;
    if (end.when != StepKind::When::kThisStep) continue;
    ++known;
    same += step[number].end == end;
  }
  return 10 * same >= 9 * known;
}

bool ExactStep::see_ends(StepKind::Step const& step, bool others) {
  bool learned = false;
  for (std::uint32_t const number : large_) {
    StepKind::End end = step[number].end;
    if (others != (end.when != StepKind::When::kThisStep)) continue;
    if (end.when == StepKind::When::kUnknown) end.when = StepKind::When::kLater;
    StepKind::LearnedEnd& known = ends_[number];
    StepKind::LearnedEnd const before = known;
    stale_ |= known.see(end);
    learned |= known != before;
  }
  return learned;
}

std::size_t ExactStep::ended_in(StepKind::When when) const {
  return static_cast<std::size_t>(std::ranges::count(
      large_, when, [this](std::uint32_t number) { return ends_[number].last.when; }));
}

bool ExactStep::alternates() const {
  for (std::uint32_t const number : large_)
    if (outlives(number) && ends_[number].end.last > number) return true;
  return false;
}

bool ExactStep::select(std::vector<Tail> const& tails) {
  if (stale_) return false;
  auto const plan = std::ranges::find(plans_, hash_of(tails), &TailsPlan::tails);
  if (plan == plans_.end()) return false;
  current_ = static_cast<std::size_t>(plan - plans_.begin());
  return true;
}

std::vector<std::uint32_t> ExactStep::chosen() const {
  std::vector<std::uint32_t> chosen;
  for (std::uint32_t const number : large_)
    if (outlives(number) || ends_[number].end.when == StepKind::When::kThisStep)
      chosen.push_back(number);
  if (chosen.size() > StepKind::kMostPlanned) {
    auto const size = [&](std::uint32_t number) { return sizes_[number]; };
    auto const last = chosen.begin() + StepKind::kMostPlanned;
    std::ranges::nth_element(chosen, last, std::greater(), size);
    chosen.erase(last, chosen.end());
  }
  return chosen;
}

std::uint64_t ExactStep::price() const {
  std::uint64_t const count = chosen().size();
  return kSearches * count * count / 4;
}

void ExactStep::plan(std::vector<Tail> const& tails, ExactStep const* like, Size highest,
                     PeriodicMemo& memo) {
  std::vector<Arc> arcs;
  std::vector<Size> offsets;
  Size enough = 0;  // no better plan than one of this height is searched
  for (Tail const& tail : tails) {
    arcs.push_back({tail.size, 0, std::min(tail.last, static_cast<std::uint32_t>(size()))});
    offsets.push_back(tail.offset);
    enough = std::max(enough, tail.offset + tail.size);
  }
  auto const requests = chosen();
  // What a block that outlives the step overlaps in the next step concerns the plan of that step.
  for (std::uint32_t const number : requests)
    arcs.push_back({sizes_[number], number, outlives(number) ? 0 : ends_[number].end.last});
  Size const load = max_load(arcs);
  enough = std::max(enough, load + load / kWaste);

  Plan best{{}, kNothing};
  auto const keep_lower = [&best](Plan&& plan) {
    if (plan.height < best.height) best = std::move(plan);
  };
  if (like != nullptr && tails.empty()) {
    enough = std::max(enough, highest);
    std::vector<Size> order;
    for (std::uint32_t const number : requests) order.push_back(like->place(number));
    for (Arc& arc : arcs) arc.size = round_up(arc.size, StepKind::kUnit);
    keep_lower(plan_in_order(arcs, order));
  }
  // Tails leave gaps for large blocks that blocks of equal duration fill better.
  auto const [usual, other] = tails.empty() ? std::pair(ArcOrder::kSize, ArcOrder::kDuration)
                                            : std::pair(ArcOrder::kDuration, ArcOrder::kSize);
  for (ArcOrder const order : {usual, other})
    if (best.height > enough) keep_lower(memo.plan(arcs, StepKind::kUnit, offsets, order));

  TailsPlan& made = unused_plan();
  made = {hash_of(tails), std::vector<Size>(size(), StepKind::kNowhere), best.height};
  for (std::size_t index = 0; index < requests.size(); ++index)
    made.offsets[requests[index]] = best.offsets[tails.size() + index];
}

// Makes it the current one.
ExactStep::TailsPlan& ExactStep::unused_plan() {
  if (stale_) plans_.clear();
  stale_ = false;
  if (plans_.size() < kMostPlans) {
    current_ = plans_.size();
    return plans_.emplace_back();
  }
  current_ = (current_ + 1) % kMostPlans;
  return plans_[current_];
}

}  // namespace allocbench

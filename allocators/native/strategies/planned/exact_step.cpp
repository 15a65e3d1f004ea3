// strategies/planned/exact_step.cpp: plans a step that is expected to repeat exactly.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/planned/exact_step.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "strategies/planned/periodic.hpp"

namespace allocbench {
namespace {

constexpr Size kWaste = 128;  // a plan that wastes 1/128 of the load is good enough
// From so many plans of a step on, blocks that outlive it get known places.
constexpr std::size_t kSettled = 1;
constexpr Size kNothing = ~Size{0};

std::uint64_t hash_of(std::vector<ExactStep::Tail> const& tails) {
  std::uint64_t hash = 0;
  for (ExactStep::Tail const& tail : tails)
    for (std::uint64_t const value : {tail.size, tail.offset, std::uint64_t{tail.last}})
      hash = (hash ^ value) * 0x9E3779B97F4A7C15u + (hash >> 29);
  return hash;
}

// Ranges of offsets that do not overlap.
class Ranges {
 public:
  // Returns false, and adds nothing, if the range overlaps an earlier one.
  bool add(Size offset, Size size) {
    auto const above = ends_.upper_bound(offset);  // the first one that ends after the offset
    if (above != ends_.end() && above->second < offset + size) return false;
    ends_.emplace(offset + size, offset);
    return true;
  }

 private:
  std::map<Size, Size> ends_;  // the begin of each range by its end
};

}  // namespace

ExactStep::ExactStep(StepKind::Step const& step) : ends_(step.size()) {
  sizes_.reserve(step.size());
  for (StepKind::Observed const& request : step) sizes_.push_back(request.size);
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
  for (std::size_t number = 0; number < step.size(); ++number) {
    StepKind::End const& end = ends_[number].end;
    if (end.when != StepKind::When::kThisStep || step[number].size < StepKind::kLeast) continue;
    ++known;
    same += step[number].end == end;
  }
  return 10 * same >= 9 * known;
}

void ExactStep::see_ends(StepKind::Step const& step, bool others) {
  for (std::size_t number = 0; number < step.size(); ++number) {
    StepKind::End end = step[number].end;
    if (step[number].size < StepKind::kLeast) continue;
    if (others != (end.when != StepKind::When::kThisStep)) continue;
    if (end.when == StepKind::When::kUnknown) end.when = StepKind::When::kLater;
    StepKind::LearnedEnd& known = ends_[number];
    bool const assumed = known.last.when == StepKind::When::kUnknown && known.end != end;
    if (assumed) known.end = known.last = end;
    stale_ |= assumed || known.see(end);
  }
}

void ExactStep::assume_ends(StepKind const& kind) {
  for (std::size_t number = 0; number < size(); ++number) ends_[number].end = kind.end(number).end;
}

bool ExactStep::alternates() const {
  for (std::uint32_t number = 0; number < size(); ++number)
    if (sizes_[number] >= StepKind::kLeast && outlives(number) && ends_[number].end.last > number)
      return true;
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
  for (std::uint32_t number = 0; number < size(); ++number)
    if (sizes_[number] >= StepKind::kLeast &&
        (outlives(number) || ends_[number].end.when == StepKind::When::kThisStep))
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
  return count * count / 4;
}

void ExactStep::plan(std::vector<Tail> const& tails) {
  std::vector<Arc> arcs;
  std::vector<Size> offsets;
  Size enough = 0;  // no better plan than one of this height is searched
  for (Tail const& tail : tails) {
    arcs.push_back({tail.size, 0, std::min(tail.last, static_cast<std::uint32_t>(size()))});
    offsets.push_back(tail.offset);
    enough = std::max(enough, tail.offset + tail.size);
  }
  auto requests = chosen();
  auto const known = plans_.size() < kSettled ? std::vector<Size>() : known_places(tails, requests);
  // What a block that outlives the step overlaps in the next step concerns the plan of that step.
  for (std::uint32_t const number : requests)
    arcs.push_back({sizes_[number], number, outlives(number) ? 0 : ends_[number].end.last});
  Size const load = max_load(arcs);
  enough = std::max(enough, load + load / kWaste);
  // Tails leave gaps for large blocks that blocks of equal duration fill better.
  auto const [usual, other] = tails.empty() ? std::pair(ArcOrder::kSize, ArcOrder::kDuration)
                                            : std::pair(ArcOrder::kDuration, ArcOrder::kSize);
  std::vector<Size> with_known = offsets;
  with_known.insert(with_known.end(), known.begin(), known.end());
  Plan best{{}, kNothing};
  for (auto const& [given, order] :
       {std::pair(&with_known, usual), std::pair(&offsets, usual), std::pair(&offsets, other)}) {
    bool const same = given == &offsets && order == usual && known.empty();
    if (best.height <= enough || same) continue;
    if (Plan plan = plan_periodic(arcs, StepKind::kUnit, *given, order); plan.height < best.height)
      best = std::move(plan);
  }
  TailsPlan& made = unused_plan();
  made = {hash_of(tails), std::vector<Size>(size(), StepKind::kNowhere), best.height};
  for (std::size_t index = 0; index < requests.size(); ++index)
    made.offsets[requests[index]] = best.offsets[tails.size() + index];
}

// The offsets that blocks that outlive the step have in another plan, if they are free. Moves the
// requests of these blocks to the front.
std::vector<Size> ExactStep::known_places(std::vector<Tail> const& tails,
                                          std::vector<std::uint32_t>& requests) const {
  std::vector<Size> offsets;
  std::vector<std::uint32_t> known, others;
  Ranges places;  // of blocks that outlive the step, all alive at its end
  for (std::uint32_t const number : requests) {
    auto const is_free = [&](TailsPlan const& plan) {
      Size const offset = plan.offsets[number];
      auto const collides = [&](Tail const& tail) {
        return number < tail.last && offset < tail.offset + tail.size &&
               tail.offset < offset + sizes_[number];
      };
      return offset != StepKind::kNowhere && std::ranges::none_of(tails, collides) &&
             places.add(offset, round_up(sizes_[number], StepKind::kUnit));
    };
    auto const plan = outlives(number) ? std::ranges::find_if(plans_, is_free) : plans_.end();
    if (plan != plans_.end()) offsets.push_back(plan->offsets[number]);
    (plan != plans_.end() ? known : others).push_back(number);
  }
  known.insert(known.end(), others.begin(), others.end());
  requests = std::move(known);
  return offsets;
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

// strategies/planned/step_kind.cpp: learns the requests of one kind of step and plans their places.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/planned/step_kind.hpp"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "strategies/planned/periodic.hpp"

namespace allocbench {
namespace {

constexpr Size kMostErratic = 16;  // no places if more than 1/16 of the large bytes are erratic
constexpr std::uint64_t kInOrder = 128;  // comparisons per block that keeps its order
constexpr Size kWaste = 2048;            // keeping the order may waste 1/2048 of the load
constexpr Size kErratic = 256;           // a size may deviate from the line by 1/256 of it
constexpr double kMostStretch = 2;
constexpr double kSpare = 1 + 1.0 / 1024;  // factor of a stretch, because offsets are rounded up

// Interpolates between the values at 0 and at 1, or extrapolates.
Size between(Size at_0, Size at_1, double proportion) {
  auto const a = static_cast<double>(at_0), b = static_cast<double>(at_1);
  return static_cast<Size>(std::max(0.0, a + (b - a) * proportion));
}

// True if the size deviates from the line by more than rounding explains.
bool far(Size size, Size line) {
  return std::max(size, line) - std::min(size, line) > std::max(line / kErratic, StepKind::kUnit);
}

}  // namespace

Size StepKind::Request::size_at(double proportion) const { return between(low, high, proportion); }

double StepKind::proportion(Size key) const {
  if (low_key_ == high_key_) return 1;
  return (static_cast<double>(key) - static_cast<double>(low_key_)) /
         static_cast<double>(high_key_ - low_key_);
}

void StepKind::Step::find_large() const {
  large_.resize(requests_.size());
  std::size_t count = 0;
  for (std::uint32_t number = 0; number < requests_.size(); ++number) {
    large_[count] = number;
    count += requests_[number].size >= kLeast;
  }
  large_.resize(count);
}

bool StepKind::alike(Step const& step) const {
  if (requests_.size() != step.size()) return false;
  std::size_t known = 0, same = 0;
  for (std::uint32_t const number : step.large()) {
    if (requests_[number].end.end.when != When::kThisStep) continue;
    ++known;
    same += step[number].end == requests_[number].end.end;
  }
  return 10 * same >= 9 * known;
}

Size StepKind::place(std::size_t request, Size size, Pose& pose) const {
  if (request >= requests_.size()) return kNowhere;
  Request const& known = requests_[request];
  if (request == key_) pose.proportion = proportion(size);
  if (!known.planned) return kNowhere;
  if (key_ != kNone) {
    Size const line = known.size_at(pose.proportion);
    if (size > line + kUnit || far(size, line)) return kNowhere;
    return round_up(between(known.low_offset, known.high_offset, pose.proportion), kUnit);
  }
  auto const ratio = static_cast<double>(size) / static_cast<double>(known.high);
  if (ratio > pose.stretch) pose.stretch = ratio * kSpare;
  if (pose.stretch > kMostStretch) return kNowhere;
  return round_up(static_cast<Size>(static_cast<double>(known.high_offset) * pose.stretch), kUnit);
}

Size StepKind::height(Pose const& pose) const {
  return static_cast<Size>(
      static_cast<double>(between(low_height_, high_height_, pose.proportion)) * pose.stretch);
}

StepKind::Pose StepKind::pose(Step const& begun) const {
  if (key_ == kNone || key_ >= begun.size()) return {};
  return {proportion(begun[key_].size), 1};
}

void StepKind::see_sizes(Step const& step) {
  ++count_;
  if (requests_.empty()) {
    ++version_;
    requests_.reserve(step.size());
    for (Observed const& request : step.requests())
      requests_.push_back({request.size, request.size});
    return;
  }
  find_key(step);
  if (key_ == kNone) return;
  Size const key = step[key_].size;
  if (key < low_key_ || key > high_key_) return widen(step, key < low_key_);
  double const where = proportion(key);
  for (std::size_t number = 0; number < step.size(); ++number) {
    Request& request = requests_[number];
    auto const before = std::pair(request.low, request.erratic);
    stale_ |= request.see_size(step[number].size, where);
    if (std::pair(request.low, request.erratic) != before) ++version_;
  }
}

// Finds the first request whose size varies. A new key starts from the largest observed sizes.
void StepKind::find_key(Step const& step) {
  std::size_t number = 0;
  std::size_t const end = key_ == kNone ? step.size() : key_;
  while (number < end && step[number].size == requests_[number].high) ++number;
  if (number == end) return;
  for (Request& request : requests_)
    request.low = request.high = std::max(request.low, request.high);
  key_ = static_cast<Index>(number);
  low_key_ = high_key_ = requests_[number].high;
  ++version_;
  stale_ = true;
}

// Extends each line to the key of this step, which is smaller or larger than all earlier keys. A
// line that would then pass below its old end is raised.
void StepKind::widen(Step const& step, bool below) {
  Size& end_key = below ? low_key_ : high_key_;
  Size const old_key = std::exchange(end_key, step[key_].size);
  double const where = proportion(old_key);
  for (std::size_t number = 0; number < step.size(); ++number) {
    Request& request = requests_[number];
    Size const old_end = std::exchange(below ? request.low : request.high, step[number].size);
    request.see_size(old_end, where);
  }
  ++version_;
  stale_ = true;
}

// Raises the line to a size above it; a difference of up to a unit is rounding. A size far from the
// line makes the request erratic. Returns true if the plan must change.
bool StepKind::Request::see_size(Size size, double proportion) {
  if (size == low && size == high) return false;
  Size const line = size_at(proportion);
  bool const was_erratic = std::exchange(erratic, erratic || far(size, line));
  if (size <= line + kUnit) return erratic && !was_erratic;
  low += size - line;
  high += size - line;
  return !was_erratic;
}

void StepKind::see_ends(Step const& step, bool others) {
  if (requests_.size() != step.size()) return;
  for (std::uint32_t const number : step.large()) {
    End end = step[number].end;
    if (others != (end.when != When::kThisStep)) continue;
    if (end.when == When::kUnknown) end.when = When::kLater;
    LearnedEnd const before = requests_[number].end;
    bool const matters = requests_[number].end.see(end);
    if (requests_[number].end != before) ++version_;
    if (!matters) continue;
    requests_[number].planned = false;
    stale_ = true;
  }
}

bool StepKind::LearnedEnd::see(End observed) {
  bool const twice = observed == last;
  last = observed;
  if (observed == end || (end.when != When::kUnknown && !twice)) return false;
  bool const matters = end.when != When::kUnknown || observed.when != When::kLater;
  end = observed;
  return matters;
}

StepKind::Chosen StepKind::chosen() const {
  std::vector<std::uint32_t> requests;
  Size erratic = 0, all = 0;  // bytes
  for (std::uint32_t number = 0; number < requests_.size(); ++number) {
    Request const& request = requests_[number];
    Size const largest = std::max(request.low, request.high);
    if (largest < kLeast) continue;
    all += largest;
    if (request.erratic)
      erratic += largest;
    else if (request.end.in_time(number))
      requests.push_back(number);
  }
  if (erratic > all / kMostErratic) return {};
  if (requests.size() > kMostPlanned) {
    auto const size = [&](std::uint32_t number) { return requests_[number].high; };
    std::ranges::nth_element(requests, requests.begin() + kMostPlanned, std::greater(), size);
    requests.resize(kMostPlanned);
  }
  auto const kept = [&](std::uint32_t number) {
    return requests_[number].planned && !from_scratch_;
  };
  auto const others = std::ranges::stable_partition(requests, kept);
  return {requests, requests.size() - others.size()};
}

std::uint64_t StepKind::price() {
  if (priced_ != version_) {
    auto const [requests, kept] = chosen();
    price_ = (requests.size() * requests.size() - kept * kept) / 4 + kept * kInOrder;
    priced_ = version_;
  }
  return price_;
}

// Blocks that had places before keep their order. If that wastes bytes, the kind stays stale, and
// the next call plans everything from scratch, at its own price.
void StepKind::plan(PeriodicMemo& memo) {
  auto const [requests, kept] = chosen();
  Size const spare = key_ == kNone ? 0 : 2 * kUnit;  // for rounding between the two plans
  std::vector<Arc> low, high;
  std::vector<Size> old_offsets;
  for (std::uint32_t const number : requests) {
    Request const& request = requests_[number];
    low.push_back({round_up(request.low, kUnit) + spare, number, request.end.end.last});
    high.push_back({round_up(request.high, kUnit) + spare, number, request.end.end.last});
    if (old_offsets.size() < kept) old_offsets.push_back(request.high_offset);
  }
  Plan high_plan = plan_in_order(std::span(high).first(kept), old_offsets);
  if (kept < requests.size()) high_plan = memo.plan(high, kUnit, high_plan.offsets);
  Size const load = max_load(high);
  from_scratch_ = kept > 0 && high_plan.height > load + load / kWaste;
  ++version_;
  if (from_scratch_) return;
  Plan const low_plan = key_ == kNone ? high_plan : plan_in_order(low, high_plan.offsets);
  for (Request& request : requests_) request.planned = false;
  for (std::size_t number = 0; number < requests.size(); ++number) {
    Request& request = requests_[requests[number]];
    request.planned = true;
    request.low_offset = low_plan.offsets[number];
    request.high_offset = high_plan.offsets[number];
  }
  low_height_ = low_plan.height;
  high_height_ = high_plan.height;
  stale_ = false;
}

namespace {

constexpr Size kMostWaste = 128;        // a plan that wastes 1/128 of the load is good enough
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
  enough = std::max(enough, load + load / kMostWaste);

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

// strategies/planned/exact_step.cpp: plans a step that is expected to repeat exactly.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/planned/exact_step.hpp"

#include <algorithm>
#include <functional>

#include "strategies/planned/periodic.hpp"

namespace allocbench {

ExactStep::ExactStep(StepKind::Step const& step) : ends_(step.size()) {
  requests_.reserve(step.size());
  for (StepKind::Observed const& request : step) requests_.push_back({request.size});
}

bool ExactStep::begins_with(StepKind::Step const& step) const {
  if (step.size() > size()) return false;
  for (std::size_t number = 0; number < step.size(); ++number)
    if (step[number].size != requests_[number].size) return false;
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

std::vector<std::uint32_t> ExactStep::chosen() const {
  std::vector<std::uint32_t> chosen;
  for (std::uint32_t number = 0; number < size(); ++number)
    if (requests_[number].size >= StepKind::kLeast && ends_[number].in_time(number))
      chosen.push_back(number);
  if (chosen.size() > StepKind::kMostPlanned) {
    auto const size = [&](std::uint32_t number) { return requests_[number].size; };
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

void ExactStep::assume_ends(StepKind const& kind) {
  for (std::size_t number = 0; number < size(); ++number) ends_[number].end = kind.end(number).end;
}

void ExactStep::plan(std::vector<Tail> const& tails, StepKind::Step const* before) {
  outlived_ = false;
  std::vector<Arc> given, others;
  std::vector<Size> offsets;
  std::vector<std::uint32_t> given_requests, other_requests;
  for (Tail const& tail : tails) {
    given.push_back({tail.size, 0, tail.last});
    offsets.push_back(tail.offset);
  }
  auto const collides = [&](Size offset, Arc const& arc) {
    return std::ranges::any_of(tails, [&](Tail const& tail) {
      return arc.first < tail.last && offset < tail.offset + tail.size &&
             tail.offset < offset + arc.size;
    });
  };
  for (std::uint32_t const number : chosen()) {
    StepKind::End const& end = ends_[number].end;
    bool const outlives = end.when == StepKind::When::kNextStep;
    // The tails of this step concern only the next step.
    Arc const arc{requests_[number].size, number, outlives && before == nullptr ? 0 : end.last};
    outlived_ |= outlives && end.last > 0;
    Size const old = before == nullptr ? requests_[number].offset : (*before)[number].offset;
    bool const keeps = outlives && old != StepKind::kNowhere && !collides(old, arc);
    (keeps ? given : others).push_back(arc);
    (keeps ? given_requests : other_requests).push_back(number);
    if (keeps) offsets.push_back(old);
  }
  given.insert(given.end(), others.begin(), others.end());
  Plan const plan = plan_periodic(given, StepKind::kUnit, offsets);
  given_requests.insert(given_requests.end(), other_requests.begin(), other_requests.end());
  for (Request& request : requests_) request.offset = StepKind::kNowhere;
  for (std::size_t index = 0; index < given_requests.size(); ++index)
    requests_[given_requests[index]].offset = plan.offsets[tails.size() + index];
  height_ = plan.height;
  follows_itself_ = before != nullptr;
  stale_ = false;
}

}  // namespace allocbench

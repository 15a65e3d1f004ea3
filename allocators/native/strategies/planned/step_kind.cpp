// strategies/planned/step_kind.cpp: what is known of the steps of one kind.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/planned/step_kind.hpp"

#include <algorithm>
#include <utility>

namespace allocbench {
namespace {

constexpr Size kErratic = 256;  // the share of its size that one may be off the line
constexpr double kMostStretch = 2;
constexpr double kSpare = 1 + 1.0 / 1024;  // in a stretch, for offsets rounded up

// On the line through two points, at 0 and at 1.
Size between(Size at_0, Size at_1, double proportion) {
  auto const a = static_cast<double>(at_0), b = static_cast<double>(at_1);
  return static_cast<Size>(std::max(0.0, a + (b - a) * proportion));
}

// Further off a line than rounding accounts for.
bool far(Size size, Size line) {
  return std::max(size, line) - std::min(size, line) > std::max(line / kErratic, StepKind::kUnit);
}

}  // namespace

Size StepKind::Request::at(double proportion) const { return between(low, high, proportion); }

double StepKind::proportion(Size key) const {
  if (low_key_ == high_key_) return 1;
  return (static_cast<double>(key) - static_cast<double>(low_key_)) /
         static_cast<double>(high_key_ - low_key_);
}

bool StepKind::alike(Step const& step) const {
  if (requests_.size() != step.size()) return false;
  std::size_t known = 0, same = 0;
  for (std::size_t at = 0; at < step.size(); ++at) {
    if (requests_[at].end.when != When::kThisStep || step[at].size < kLeast) continue;
    ++known;
    same += step[at].end == requests_[at].end;
  }
  return 10 * same >= 9 * known;
}

Size StepKind::place(std::size_t request, Size size, Pose& pose) const {
  if (request >= requests_.size()) return kNowhere;
  Request const& known = requests_[request];
  if (request == key_) pose.proportion = proportion(size);
  if (!known.planned) return kNowhere;
  if (key_ != kNone) {
    Size const line = known.at(pose.proportion);
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
  ++seen_;
  if (requests_.empty()) {
    for (Seen const& seen : step) requests_.push_back({seen.size, seen.size});
    return;
  }
  find_key(step);
  if (key_ == kNone) return;
  Size const key = step[key_].size;
  if (key < low_key_ || key > high_key_) return widen(step, key < low_key_);
  for (std::size_t at = 0; at < step.size(); ++at)
    stale_ |= requests_[at].see_size(step[at].size, proportion(key));
}

// The first request whose size varies. A new key begins with the largest sizes seen.
void StepKind::find_key(Step const& step) {
  std::size_t at = 0;
  std::size_t const end = key_ == kNone ? step.size() : key_;
  while (at < end && step[at].size == requests_[at].high) ++at;
  if (at == end) return;
  for (Request& request : requests_)
    request.low = request.high = std::max(request.low, request.high);
  key_ = static_cast<Index>(at);
  low_key_ = high_key_ = requests_[at].high;
  stale_ = true;
}

// The step has a smaller or a larger key than any before: one end of each line moves there. A line
// that then passes below where its end was is lifted.
void StepKind::widen(Step const& step, bool below) {
  Size& end_key = below ? low_key_ : high_key_;
  Size const before = std::exchange(end_key, step[key_].size);
  for (std::size_t at = 0; at < step.size(); ++at) {
    Request& request = requests_[at];
    Size const seen = std::exchange(below ? request.low : request.high, step[at].size);
    request.see_size(seen, proportion(before));
  }
  stale_ = true;
}

// Lifts the line above a size; up to a unit is rounding. A size far from the line makes the request
// an erratic one. Whether the plan is to change.
bool StepKind::Request::see_size(Size size, double proportion) {
  Size const line = at(proportion);
  bool const was_erratic = std::exchange(erratic, erratic || far(size, line));
  if (size <= line + kUnit) return erratic && !was_erratic;
  low += size - line;
  high += size - line;
  return !was_erratic;
}

void StepKind::see_ends(Step const& step, bool others) {
  if (requests_.size() != step.size()) return;
  for (std::size_t at = 0; at < step.size(); ++at) {
    if (step[at].size < kLeast) continue;
    End end = step[at].end;
    if (others != (end.when != When::kThisStep)) continue;
    if (end.when == When::kUnknown) end.when = When::kLater;
    if (!requests_[at].see_end(end)) continue;
    requests_[at].planned = false;
    stale_ = true;
  }
}

// One odd step changes nothing: another end than the one known counts when it is seen twice in a
// row. Whether the plan is to change.
bool StepKind::Request::see_end(End seen) {
  bool const twice = seen == odd;
  odd = seen;
  if (seen == end || (end.when != When::kUnknown && !twice)) return false;
  bool const matters = end.when != When::kUnknown || seen.when != When::kLater;
  end = seen;
  return matters;
}

}  // namespace allocbench

// strategies/planned/step_kind_plan.cpp: where the blocks of a step are to lie.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "strategies/planned/periodic.hpp"
#include "strategies/planned/step_kind.hpp"

namespace allocbench {
namespace {

constexpr std::size_t kMostPlanned = 8192;  // requests of a step, the largest ones
constexpr Size kMostErratic = 16;           // the share of large bytes that may be erratic
constexpr std::uint64_t kInOrder = 128;     // comparisons for each block that keeps its order
constexpr Size kWaste = 2048;               // the share of its load that this may waste

}  // namespace

bool StepKind::Request::worth_a_place(std::size_t number) const {
  bool const dies =
      end.when == When::kThisStep || (end.when == When::kNextStep && end.last <= number);
  return dies && !erratic && std::max(low, high) >= kLeast;
}

bool StepKind::is_erratic() const {
  Size erratic = 0, all = 0;
  for (Request const& request : requests_) {
    Size const most = std::max(request.low, request.high);
    if (most < kLeast) continue;
    all += most;
    if (request.erratic) erratic += most;
  }
  return erratic > all / kMostErratic;
}

StepKind::Chosen StepKind::chosen() const {
  std::vector<std::uint32_t> found;
  if (is_erratic()) return {};
  for (std::uint32_t at = 0; at < requests_.size(); ++at)
    if (requests_[at].worth_a_place(at)) found.push_back(at);
  if (found.size() > kMostPlanned) {
    auto const size = [&](std::uint32_t at) { return requests_[at].high; };
    std::ranges::nth_element(found, found.begin() + kMostPlanned, std::greater(), size);
    found.resize(kMostPlanned);
  }
  auto const kept = [&](std::uint32_t at) { return requests_[at].planned && !anew_; };
  auto const others = std::ranges::stable_partition(found, kept);
  return {found, found.size() - others.size()};
}

std::uint64_t StepKind::price() const {
  auto const [requests, kept] = chosen();
  return (requests.size() * requests.size() - kept * kept) / 4 + kept * kInOrder;
}

// What had a place before keeps its order. When that wastes bytes the kind stays stale, and all of
// it is planned anew for another price.
void StepKind::plan() {
  auto const [requests, kept] = chosen();
  Size const spare = key_ == kNone ? 0 : 2 * kUnit;  // for what is rounded between the plans
  std::vector<Arc> low, high;
  std::vector<Size> before;
  for (std::uint32_t const at : requests) {
    Request const& request = requests_[at];
    low.push_back({round_up(request.low, kUnit) + spare, at, request.end.last});
    high.push_back({round_up(request.high, kUnit) + spare, at, request.end.last});
    if (before.size() < kept) before.push_back(request.high_offset);
  }
  Plan of_high = plan_in_order(std::span(high).first(kept), before);
  if (kept < requests.size()) of_high = plan_periodic(high, kUnit, of_high.offsets);
  Size const load = max_load(high);
  anew_ = kept > 0 && of_high.height > load + load / kWaste;
  if (anew_) return;
  Plan const of_low = key_ == kNone ? of_high : plan_in_order(low, of_high.offsets);
  for (Request& request : requests_) request.planned = false;
  for (std::size_t at = 0; at < requests.size(); ++at) {
    Request& request = requests_[requests[at]];
    request.planned = true;
    request.low_offset = of_low.offsets[at];
    request.high_offset = of_high.offsets[at];
  }
  low_height_ = of_low.height;
  high_height_ = of_high.height;
  planned_ = !requests.empty();
  stale_ = false;
}

}  // namespace allocbench

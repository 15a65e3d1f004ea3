// strategies/planned/step_kind_plan.cpp: plans the places of the blocks of a step.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "strategies/planned/periodic.hpp"
#include "strategies/planned/step_kind.hpp"

namespace allocbench {
namespace {

constexpr Size kMostErratic = 16;  // no places if more than 1/16 of the large bytes are erratic
constexpr std::uint64_t kInOrder = 128;  // comparisons per block that keeps its order
constexpr Size kWaste = 2048;            // keeping the order may waste 1/2048 of the load

}  // namespace

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
  planned_ = !requests.empty();
  stale_ = false;
}

}  // namespace allocbench

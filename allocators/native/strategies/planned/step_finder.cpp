// strategies/planned/step_finder.cpp: detects the steps of a program from its requests.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/planned/step_finder.hpp"

#include <algorithm>

namespace allocbench {
namespace {

constexpr std::uint64_t kWindow = 8;    // sizes that a 64-bit hash covers
constexpr std::uint64_t kTimes = 4;     // sequences needed to accept a period
constexpr std::uint64_t kSettled = 64;  // regular steps after which the search stops
constexpr std::uint64_t kPatience = 4;  // periods without the anchor before it is dropped
constexpr std::size_t kMostOccurrences = 8192;
constexpr std::uint64_t kThinnest = 255;  // mask: at least one in 256 sequences is examined

std::uint64_t mixed(Size size) { return (size * 0x9E3779B97F4A7C15u) >> 24; }

}  // namespace

bool StepFinder::begins(Size size, Size live) {
  ++request_;
  hash_ = (hash_ << (64 / kWindow)) + mixed(size);
  if (regular_ < kSettled) find_longer_period(live);
  return period_ != 0 && at_anchor();
}

void StepFinder::find_longer_period(Size live) {
  if (request_ < kWindow || !examined(hash_)) return;
  if (occurrences_.size() == kMostOccurrences) thin_out();
  Occurrence& previous = occurrences_[hash_];
  std::uint64_t const distance = request_ - previous.request;
  bool const periodic = previous.request != 0 && distance == previous.distance;
  previous = {request_, previous.request == 0 ? 0 : distance};
  if (periodic && distance > std::max(period_, wrong_)) {
    if (distance > candidate_.period) candidate_ = {.period = distance, .since = request_};
    if (distance == candidate_.period) {
      ++candidate_.times;
      if (live < candidate_.fewest) {
        candidate_.fewest = live;
        candidate_.anchor = hash_;
      }
    }
  }
  if (candidate_.times < kTimes || request_ - candidate_.since < candidate_.period) return;
  period_ = candidate_.period;
  anchor_ = candidate_.anchor;
  last_ = request_;
  regular_ = 0;
  candidate_ = {};
}

// Drops half of the sequences and stops examining them. Drops all once the fraction is too small.
void StepFinder::thin_out() {
  thinning_ = 2 * thinning_ + 1;
  if (thinning_ <= kThinnest) {
    std::erase_if(occurrences_, [this](auto const& entry) { return !examined(entry.first); });
  } else {
    occurrences_.clear();
    thinning_ = wrong_ = 0;
  }
}

bool StepFinder::at_anchor() {
  std::uint64_t const length = request_ - last_;
  if (hash_ == anchor_ && 2 * length >= period_) {
    regular_ = length == period_ ? regular_ + 1 : 0;
    last_ = request_;
    return true;
  }
  if (length <= kPatience * period_) return false;
  wrong_ = regular_ < kSettled ? period_ : 0;
  period_ = regular_ = 0;
  return false;
}

}  // namespace allocbench

// strategies/planned/step_finder.cpp: detects the steps of a program from its requests.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/planned/step_finder.hpp"

#include <algorithm>

namespace allocbench {
namespace {

constexpr std::uint64_t kWindow = 8;    // sizes that a 64-bit hash covers
constexpr std::uint64_t kTimes = 4;     // sequences needed to accept a period
constexpr std::uint64_t kSettled = 64;  // regular steps after which the search stops
constexpr std::uint64_t kPatience = 4;  // periods without the anchor before it is given up
constexpr std::size_t kMostSeen = 8192;
constexpr std::uint64_t kThinnest = 255;  // mask: at least one in 256 sequences is examined

std::uint64_t mixed(Size size) { return (size * 0x9E3779B97F4A7C15u) >> 24; }

}  // namespace

bool StepFinder::begins(Size size, Size live) {
  ++request_;
  hash_ = (hash_ << (64 / kWindow)) + mixed(size);
  if (regular_ < kSettled) look_for_longer(live);
  return period_ != 0 && at_anchor();
}

void StepFinder::look_for_longer(Size live) {
  if (request_ < kWindow || !looked_at(hash_)) return;
  if (seen_.size() == kMostSeen) thin_out();
  Seen& seen = seen_[hash_];
  std::uint64_t const distance = request_ - seen.request;
  bool const again = seen.request != 0 && distance == seen.distance;
  seen = {request_, seen.request == 0 ? 0 : distance};
  if (again && distance > std::max(period_, missed_)) {
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

// Forgets half of the sequences and stops looking at them; forgets all once few are left.
void StepFinder::thin_out() {
  thinning_ = 2 * thinning_ + 1;
  if (thinning_ <= kThinnest) {
    std::erase_if(seen_, [this](auto const& seen) { return !looked_at(seen.first); });
  } else {
    seen_.clear();
    thinning_ = missed_ = 0;
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
  missed_ = regular_ < kSettled ? period_ : 0;
  period_ = regular_ = 0;
  return false;
}

}  // namespace allocbench

// strategies/planned/step_finder.hpp: detects the steps of a program from its requests.
// SPDX-License-Identifier: Apache-2.0
//
// A program that repeats itself requests some sequences of sizes exactly once per step, such as the
// gradients of its first layer or the states of its optimizer. These are sizes of weights, so they
// stay the same when inputs vary. If a sequence (identified by a hash of its last eight sizes)
// recurs twice at the same distance, counted in requests, that distance is a period. Layers have
// shorter periods within a step, so the longest period is used. Among its sequences, the one that
// occurs with the fewest live bytes becomes the anchor, and a step begins where the anchor ends.
// When the anchor has recurred regularly often enough, the search stops until the anchor is missed.
// If there are many sequences, only a fixed fraction of them is examined. A request takes O(1)
// expected steps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include "core/types.hpp"

namespace allocbench {

class StepFinder {
 public:
  // Records the next request, made while `live` requested bytes are alive. True if it begins a
  // step.
  bool begins(Size size, Size live) {
    ++request_;
    hash_ = (hash_ << (64 / kWindow)) + mixed(size);
    if (regular_ < kSettled) find_longer_period(live);
    return period_ != 0 && at_anchor();
  }

 private:
  static constexpr std::uint64_t kWindow = 8;    // sizes that a 64-bit hash covers
  static constexpr std::uint64_t kTimes = 4;     // sequences needed to accept a period
  static constexpr std::uint64_t kSettled = 64;  // regular steps after which the search stops
  static constexpr std::uint64_t kPatience = 4;  // periods without the anchor before it is dropped
  static constexpr std::size_t kMostOccurrences = 8192;
  static constexpr std::uint64_t kThinnest =
      255;  // mask: at least one in 256 sequences is examined
  static std::uint64_t mixed(Size size) { return (size * 0x9E3779B97F4A7C15u) >> 24; }

  struct Occurrence {            // the last one of a sequence
    std::uint64_t request = 0;   // number of the request, from 1
    std::uint64_t distance = 0;  // from the previous occurrence
  };
  struct Candidate {
    std::uint64_t period = 0;  // requests
    std::uint64_t since = 0;   // request at which it was first seen
    std::uint64_t times = 0;   // number of sequences with this period
    Size fewest = ~Size{0};    // fewest bytes alive at any of them
    std::uint64_t anchor = 0;  // hash of the sequence with the fewest live bytes
  };

  void find_longer_period(Size live) {
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
  void thin_out() {
    thinning_ = 2 * thinning_ + 1;
    if (thinning_ <= kThinnest) {
      std::erase_if(occurrences_, [this](auto const& entry) { return !examined(entry.first); });
    } else {
      occurrences_.clear();
      thinning_ = wrong_ = 0;
    }
  }

  bool examined(std::uint64_t hash) const {
    return ((hash * 0x9E3779B97F4A7C15u >> 32) & thinning_) == 0;
  }

  bool at_anchor() {
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

  std::uint64_t request_ = 0;                                  // requests so far
  std::uint64_t hash_ = 0;                                     // of the last eight sizes
  std::unordered_map<std::uint64_t, Occurrence> occurrences_;  // by hash
  std::uint64_t thinning_ = 0;  // mask of the bits that are 0 in the mixed hash of examined ones
  Candidate candidate_;
  std::uint64_t period_ = 0;   // of the anchor; 0: no anchor
  std::uint64_t anchor_ = 0;   // hash
  std::uint64_t last_ = 0;     // request at which the last step began
  std::uint64_t regular_ = 0;  // consecutive steps that were one period long
  std::uint64_t wrong_ = 0;    // the longest period that proved wrong
};

}  // namespace allocbench

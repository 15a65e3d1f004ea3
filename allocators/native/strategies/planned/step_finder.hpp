// strategies/planned/step_finder.hpp: detects the steps of a program from its requests.
// SPDX-License-Identifier: Apache-2.0
//
// A program that repeats itself requests some sequences of sizes exactly once per step: the
// gradients of its first layer, the states of its optimizer. These are the sizes of weights, so
// they stay the same when inputs vary. If a sequence (identified by a hash of its last eight sizes)
// recurs twice at the same distance, counted in requests, that distance is a period. Layers have
// shorter periods within a step, so the longest period counts. Among its sequences, the one seen
// when the fewest bytes were alive becomes the anchor: a step begins where it ends. Once the anchor
// has recurred regularly often enough, the search stops until the anchor is missed. The more
// sequences there are, the smaller the fraction that is examined; it is the same fraction each
// time. A request takes O(1) expected steps.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "core/types.hpp"

namespace allocbench {

class StepFinder {
 public:
  // Records the next request, made while `live` requested bytes are alive. True if it begins a
  // step.
  bool begins(Size size, Size live);

 private:
  struct Seen {
    std::uint64_t request = 0;   // number of the request, from 1
    std::uint64_t distance = 0;  // from the previous occurrence
  };
  struct Candidate {
    std::uint64_t period = 0;  // requests
    std::uint64_t since = 0;   // request at which it was first seen
    std::uint64_t times = 0;   // sequences seen with it
    Size fewest = ~Size{0};    // fewest bytes alive at any of those
    std::uint64_t anchor = 0;  // hash of the sequence with the fewest live bytes
  };

  void look_for_longer(Size live);
  void thin_out();
  bool looked_at(std::uint64_t hash) const {
    return ((hash * 0x9E3779B97F4A7C15u >> 32) & thinning_) == 0;
  }
  bool at_anchor();

  std::uint64_t request_ = 0;  // requests so far
  std::uint64_t hash_ = 0;     // of the last eight sizes
  std::unordered_map<std::uint64_t, Seen> seen_;
  std::uint64_t thinning_ = 0;  // mask of bits that must be 0 in a mixed hash to be examined
  Candidate candidate_;
  std::uint64_t period_ = 0;   // of the anchor; 0: no anchor
  std::uint64_t anchor_ = 0;   // hash
  std::uint64_t last_ = 0;     // request at which the last step began
  std::uint64_t regular_ = 0;  // consecutive steps that were one period long
  std::uint64_t missed_ = 0;   // the longest period that proved wrong
};

}  // namespace allocbench

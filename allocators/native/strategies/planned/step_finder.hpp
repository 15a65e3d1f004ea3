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

  void find_longer_period(Size live);
  void thin_out();
  bool examined(std::uint64_t hash) const {
    return ((hash * 0x9E3779B97F4A7C15u >> 32) & thinning_) == 0;
  }
  bool at_anchor();

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

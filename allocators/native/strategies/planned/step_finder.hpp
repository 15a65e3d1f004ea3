// strategies/planned/step_finder.hpp: where the steps of a program begin, found in its requests.
// SPDX-License-Identifier: Apache-2.0
//
// A program that repeats itself asks for some sequences of sizes exactly once in each step: the
// gradients of its first layer, the states of its optimizer. However its inputs vary, those are
// the sizes of weights. A sequence, told by a hash of its last eight sizes, that comes again twice
// at the same distance, counted in requests, makes that distance a period. Layers have periods of
// their own within a step, so the longest counts. Of the sequences of that period the one seen when
// the fewest bytes were alive becomes the anchor: where it ends, a step begins. Once it has come
// regularly often enough nothing else is looked for, until it is missed. The more sequences there
// are, the fewer of them are looked at, the same ones each time that they come.
// A request takes O(1) expected steps.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "core/types.hpp"

namespace allocbench {

class StepFinder {
 public:
  // The next request, made while `live` requested bytes are alive. Whether a step begins with it.
  bool begins(Size size, Size live);

 private:
  struct Seen {
    std::uint64_t at = 0;        // request, from 1
    std::uint64_t distance = 0;  // from the time before
  };
  struct Candidate {
    std::uint64_t period = 0;  // requests
    std::uint64_t since = 0;   // request at which it was first seen
    std::uint64_t times = 0;   // sequences seen with it
    Size fewest = ~Size{0};    // bytes alive at any of those
    std::uint64_t anchor = 0;  // hash of the sequence seen then
  };

  void look_for_longer(Size live);
  void thin_out();
  bool looked_at(std::uint64_t hash) const {
    return ((hash * 0x9E3779B97F4A7C15u >> 32) & thinning_) == 0;
  }
  bool at_anchor();

  std::uint64_t at_ = 0;    // requests so far
  std::uint64_t hash_ = 0;  // of the last eight sizes
  std::unordered_map<std::uint64_t, Seen> seen_;
  std::uint64_t thinning_ = 0;  // bits that are 0 in the hashes looked at, once mixed
  Candidate candidate_;
  std::uint64_t period_ = 0;   // of the anchor; 0: there is none
  std::uint64_t anchor_ = 0;   // hash
  std::uint64_t last_ = 0;     // request at which a step began
  std::uint64_t regular_ = 0;  // steps in a row that were a period long
  std::uint64_t missed_ = 0;   // the longest period that led nowhere
};

}  // namespace allocbench

// strategies/planned/profile.hpp: what a program asks for, step by step, and where it is to lie.
// SPDX-License-Identifier: Apache-2.0
//
// A program has few kinds of steps: its beginning, a first step that makes the optimizer's state,
// the steps after it, an evaluation now and then. Which kind comes next is guessed from the kind
// before it, and guessed anew where the sizes of the step say otherwise. Nothing is known that has
// not been seen.
//
// A request and a free take O(1) steps, amortised: a step is looked through when it ends, and
// plans are made no faster than requests have paid for them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/types.hpp"
#include "parts/node.hpp"
#include "strategies/planned/step_kind.hpp"

namespace allocbench {

class Profile {
 public:
  static constexpr Size kNowhere = StepKind::kNowhere;

  // Names a request, for when its block is freed; none where the block is not worth a place.
  struct Ticket {
    std::uint32_t step = 0;
    std::uint32_t request = kNone;
  };
  struct Placed {
    Ticket ticket;
    Size offset = kNowhere;  // planned
  };

  // Ends the step and begins the next one, with its first request: what is freed before that dies
  // in the step that ends.
  void begin_step();

  // The next request of the step.
  Placed request(Size size);

  void freed(Ticket ticket);

  // Ends a run and begins another of the same program. What is not planned yet is planned,
  // whatever that costs.
  void begin_run();

  // Whether all steps since `begin_run` were of the kinds expected, and whether this one has asked
  // for all that its kind asks for.
  bool follows() const { return follows_; }
  bool complete() const { return guess_ != kNone && now_.size() == kinds_[guess_].steps.size(); }

  // Bytes that the places of this step span, as far as is known.
  Size height() const { return guess_ == kNone ? 0 : kinds_[guess_].steps.height(pose_); }
  std::uint64_t plans() const { return plans_; }  // made so far

 private:
  struct Kind {
    StepKind steps;
    Index next = kNone;      // the kind of the step that comes after
    Index odd_next = kNone;  // the kind of the step that came after the last one
    std::uint32_t used = 0;  // the step in which it was last seen
    void see_next(Index kind);
  };

  void guess_again();
  Index usual(bool planned) const;
  Index learn();
  Index unused_kind();
  void plan(Kind& kind);
  void expect(Index kind);

  static constexpr std::uint64_t kMostCredit = std::uint64_t{1} << 26;

  std::vector<Kind> kinds_;
  StepKind::Step now_, last_;   // the requests of this step and of the one before
  Index before_ = kNone;        // the kind of the step before
  Index guess_ = kNone;         // the kind that this step seems to be of
  Index opening_ = kNone;       // the kind of the first step of a run
  StepKind::Pose pose_;         // of this step
  std::uint32_t rejected_ = 0;  // a bit for each kind that this step does not agree with
  bool follows_ = false;
  std::uint32_t step_ = 0;
  std::uint64_t credit_ = kMostCredit;  // comparisons that requests have paid for
  std::uint64_t plans_ = 0;
};

}  // namespace allocbench

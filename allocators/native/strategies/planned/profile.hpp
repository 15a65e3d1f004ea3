// strategies/planned/profile.hpp: the requests of each step of a program and their planned places.
// SPDX-License-Identifier: Apache-2.0
//
// A program has a few kinds of steps: its start, a first step that creates the optimizer's state,
// the following steps, an occasional evaluation. The kind of the next step is predicted from the
// previous kind, and predicted again when the sizes of the step do not match.
//
// A request and a free take O(1) amortized steps: a step is examined once when it ends, unless it
// was the expected one in every respect, so that nothing can be learned from it. Requests earn
// credit that limits how often plans are made. Plans of steps that have repeated have
// a credit of their own, which is large from the beginning, because such plans will be used. Other
// plans may be made in vain, so they must not slow down the first steps of a program much.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/options.hpp"
#include "core/types.hpp"
#include "parts/node.hpp"
#include "strategies/planned/step_kind.hpp"

namespace allocbench {

class Profile {
 public:
  static constexpr Size kNowhere = StepKind::kNowhere;

  // Identifies a request when its block is freed; empty if the block is too small for a place.
  struct Ticket {
    std::uint32_t step = 0;
    std::uint32_t request = kNone;
  };
  struct Place {
    Ticket ticket;
    Size offset = kNowhere;  // planned
  };

  // Ends the step and begins the next one, directly before the first request of the next one.
  // Blocks freed before this call end in the step that ends.
  void begin_step();

  // Records the next request of the step and returns its planned place.
  Place request(Size size) {
    std::size_t const number = this_step_.size();
    if (number >= places_.size() || sizes_[number] != size) return other_request(size);
    Size const offset = places_[number];
    this_step_.push_back({size, {}, offset});
    return {ticket(number, size), offset};
  }

  // The last request did not get its planned place.
  void missed_place() {
    this_step_.back().offset = kNowhere;
    missed_ = true;
  }

  void freed(Ticket ticket) {
    if (ticket.request != kNone) see_free(ticket);
  }

  // Ends a run and begins another one of the same program, with other data: no step is expected to
  // repeat exactly. Plans all kinds that are not planned yet, at any cost.
  void begin_run();

  // True if all steps since `begin_run` were of the expected kinds.
  bool follows() const { return follows_; }
  // True if this step has made all requests of its kind.
  bool complete() const {
    return guess_ != kNone && this_step_.size() == kinds_[guess_].steps.size();
  }

  // True if the last step was an exact repetition.
  bool repeats() const { return previous_exact_ != kNone && exacts_[previous_exact_].times > 1; }
  // Bytes spanned by the planned places of a step that is not exact; 0 if unknown.
  Size height() const { return guess_ == kNone ? 0 : kinds_[guess_].steps.height(pose_); }
  std::uint64_t plans() const { return plans_; }  // number of plans made so far

 private:
  struct Kind {
    StepKind steps;
    Index next = kNone;      // the kind of the step that follows
    Index odd_next = kNone;  // the kind that followed the last time
    std::uint32_t used = 0;  // the step in which it was last seen
    void see_next(Index kind);
    // Steps whose sizes vary tell little until there are a few of them.
    bool has_repeated() const { return steps.count() >= (steps.varies() ? 3u : 2u); }
  };

  // The kind of a step when nothing was learned from the step. Nothing will be learned the next
  // time if the kind has not changed and the blocks end where they ended then.
  struct Known {
    Index kind = kNone;
    std::uint64_t version = 0;
    std::size_t ends = 0;  // number of blocks that ended
  };
  struct Ends {  // of blocks, up to now
    std::size_t seen = 0;
    std::size_t known = 0;  // those that are where they were before
    void see(bool is_known) {
      ++seen;
      known += is_known;
    }
  };

  // A step that has occurred with exactly these sizes.
  struct Exact {
    ExactStep step = {};
    Index kind = kNone;       // to which it belongs
    bool missed = false;      // its kind was not predicted once, or a place was occupied
    std::uint32_t times = 0;  // how often it occurred
    std::uint32_t used = 0;   // the number of the step after its last one; 0: never seen
    Known own = {};           // with the blocks that end in the step
    Known others = {};        // with all other blocks
    // The requests that may have places and whose blocks did not end in the step when it was last
    // examined.
    std::vector<std::uint32_t> outliving = {};
  };

  Ticket ticket(std::size_t number, Size size) const {
    if (size < StepKind::kLeast) return {};
    return {step_, static_cast<std::uint32_t>(number)};
  }
  Place other_request(Size size);
  void see_free(Ticket ticket);
  bool as_expected() const;
  bool ended_as_expected() const;
  bool knows(Known const& known, Ends const& ends) const;
  void learn_from_others();
  void follow(Index exact);
  void expect_exact(Index exact);
  Index next_exact() const;
  void see_exact(Index exact, Index kind, bool learned);
  void note_exact(Index exact, Index kind);
  bool plan_exact(Index exact);
  std::vector<ExactStep::Tail> tails() const;
  bool match_exact();
  Index learn_exact();
  Index unused_exact();
  void resume_guess();
  void guess_again();
  Index most_common() const;
  Index learn(Index exact);
  Index unused_kind();
  void earn();
  void plan(Kind& kind);
  void plan_guess();
  void expect(Index kind);

  // A step that begins with this many requests of an earlier step probably repeats it.
  static constexpr std::uint32_t kConvincing = 128;
  static constexpr std::uint64_t kFirstCredit = std::uint64_t{1} << 13;  // for short steps
  static constexpr std::uint64_t kMostCredit = std::uint64_t{1} << 26;

  std::vector<Kind> kinds_;
  std::vector<Exact> exacts_;
  Index exact_ = kNone;           // has a plan, and all requests of this step agree with it so far
  Index expected_ = kNone;        // followed before, and all requests of this step agree with it
  std::span<Size const> sizes_;   // of `exact_` or `expected_`, by request
  std::span<Size const> places_;  // of `exact_`
  Index previous_exact_ = kNone;  // the previous step
  bool previous_known_ = false;   // nothing was learned from the blocks that ended in it
  Ends ends_, previous_ends_;     // of the blocks of this step and of the previous one, in this one
  std::vector<Index> history_;    // the last exact steps
  bool missed_ = false;           // a place was occupied in this step
  std::uint64_t mismatched_ = 0;  // a bit for each exact step that does not match this step
  StepKind::Step this_step_, previous_step_;  // their requests
  Index previous_ = kNone;                    // the kind of the previous step
  Index guess_ = kNone;                       // the predicted kind of this step
  Index opening_ = kNone;                     // the kind of the first step of a run
  StepKind::Pose pose_;                       // of this step
  std::uint32_t rejected_ = 0;                // a bit for each kind that does not match this step
  bool follows_ = false;
  std::uint32_t step_ = 0;
  std::uint64_t credit_ = kFirstCredit;          // comparisons earned by requests
  std::uint64_t repeated_credit_ = kMostCredit;  // for steps that have repeated
  std::size_t earned_ = 0;                       // requests of this step that have earned credit
  std::uint64_t plans_ = 0;
  PeriodicMemo memo_;
};

// Builds the profile of a run from a CSV with the columns id,lower,upper,size,offset,step: one
// block per line, alive from instant `lower` up to but not including `upper` and requested after
// `step` steps had begun. Without the column `step`, steps are detected as in a run without marks.
// The order of the lines does not matter; the offsets, valid only for that run, are ignored. Throws
// SpecError with the option and the line if the file cannot be read or is not such a CSV.
Profile read_profile(Options const& given, std::string_view option);

}  // namespace allocbench

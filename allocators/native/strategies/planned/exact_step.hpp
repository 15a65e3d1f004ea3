// strategies/planned/exact_step.hpp: a step that is expected to repeat with exactly these sizes.
// SPDX-License-Identifier: Apache-2.0
//
// A step is planned when it is about to be repeated for the first time, so steps that never repeat
// cost no plan. Blocks of the previous step that are still alive, its tails, keep their places, and
// the plan avoids them until they are freed. A step can follow several others, or itself with
// blocks that it loads ahead, such as the next batch, in two places in turn. So it has a plan for
// each set of tails, and a request has the same place whenever its step begins in the same
// situation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/types.hpp"
#include "parts/node.hpp"
#include "strategies/planned/periodic.hpp"
#include "strategies/planned/step_kind.hpp"

namespace allocbench {

class ExactStep {
 public:
  struct Tail {  // a block of the step before, alive until the request `last` of this step
    Size size;
    Size offset;
    std::uint32_t last;
  };

  ExactStep() = default;  // no request agrees with it
  explicit ExactStep(StepKind::Step const& step);

  std::size_t size() const { return sizes_.size(); }
  std::span<Size const> sizes() const { return sizes_; }  // by request
  // True if the step began with these requests.
  bool begins_with(StepKind::Step const& step) const;
  // True if the step had these requests, and nine in ten of the large blocks that ended in it ended
  // where they ended before.
  bool alike(StepKind::Step const& step) const;
  // The planned offset of each request, or StepKind::kNowhere.
  std::span<Size const> places() const { return plans_[current_].offsets; }
  Size place(std::size_t request) const {
    return planned() ? places()[request] : StepKind::kNowhere;
  }
  // Bytes from the lowest offset to the highest end.
  Size height() const { return plans_[current_].height; }

  StepKind::End const& end(std::size_t request) const { return ends_[request].end; }
  // True if the block of a request has ended like this in the last two steps.
  bool ended_so(std::size_t request, StepKind::End const& end) const {
    return ends_[request].end == end && ends_[request].last == end;
  }
  std::size_t ended_in(StepKind::When when) const;  // number of blocks in the last step
  // As StepKind::see_ends. Returns true if something was learned.
  bool see_ends(StepKind::Step const& step, bool others);

  // Selects the plan for these blocks of the step before, which are still alive. Returns false if
  // no such plan has been made since the step last changed.
  bool select(std::vector<Tail> const& tails);
  std::uint64_t price() const;  // of making a plan, in comparisons
  // Makes the plan for these tails. It is in the vertical order of a similar step, if there is one
  // and its blocks then end below `highest`.
  void plan(std::vector<Tail> const& tails, ExactStep const* like, Size highest,
            PeriodicMemo& memo);
  bool planned() const { return !plans_.empty(); }
  // True if blocks of a request outlive the same request in the next step, so that they cannot have
  // the same place in each step.
  bool alternates() const;

 private:
  struct TailsPlan {
    std::uint64_t tails;        // a hash
    std::vector<Size> offsets;  // by request
    Size height;
  };
  static constexpr std::size_t kMostPlans = 8;

  bool outlives(std::size_t request) const {
    return ends_[request].end.when == StepKind::When::kNextStep;
  }
  std::vector<std::uint32_t> chosen() const;  // the requests that get places, by number
  TailsPlan& unused_plan();

  std::vector<Size> sizes_;           // by request
  std::vector<std::uint32_t> large_;  // the requests that may have places
  std::vector<StepKind::LearnedEnd> ends_;
  std::vector<TailsPlan> plans_;
  std::size_t current_ = 0;  // plan
  bool stale_ = true;        // the step has changed since it was planned
};

}  // namespace allocbench

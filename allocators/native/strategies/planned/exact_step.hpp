// strategies/planned/exact_step.hpp: a step that is expected to repeat with exactly these sizes.
// SPDX-License-Identifier: Apache-2.0
//
// Each request has one place, the same in every repetition. A step is planned when it is about to
// be repeated for the first time, so steps that never repeat cost no plan. Blocks of the previous
// step that are still alive keep their places, and the plan avoids them until they are freed.
#pragma once

#include <cstdint>
#include <vector>

#include "core/types.hpp"
#include "parts/node.hpp"
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

  std::size_t size() const { return requests_.size(); }
  bool agrees(std::size_t request, Size size) const {
    return request < requests_.size() && requests_[request].size == size;
  }
  // True if the step began with these requests.
  bool begins_with(StepKind::Step const& step) const;
  // True if the step had these requests, and nine in ten of the large blocks that ended in it ended
  // where they ended before.
  bool alike(StepKind::Step const& step) const;
  // The planned offset of a request, or StepKind::kNowhere.
  Size place(std::size_t request) const { return requests_[request].offset; }
  // Bytes from the lowest offset to the highest end.
  Size height() const { return height_; }

  StepKind::End const& end(std::size_t request) const { return ends_[request].end; }
  // Assumes the ends of its kind until it has seen its own.
  void assume_ends(StepKind const& kind);
  // As StepKind::see_ends.
  void see_ends(StepKind::Step const& step, bool others);

  void conflict() { stale_ = true; }  // a place was occupied
  // True if it must be planned: it has changed, or its last plan was for another step before it.
  bool stale(bool follows_itself) const {
    return stale_ || (outlived_ && follows_itself != follows_itself_);
  }
  std::uint64_t price() const;  // of making a plan, in comparisons
  // `tails` are the blocks of the step before that are still alive. Blocks that outlive the step
  // keep their places where possible, so that the plans of the next steps stay valid. If the step
  // before was the same, `before` says where it had its blocks, and there are no tails.
  void plan(std::vector<Tail> const& tails, StepKind::Step const* before);

 private:
  struct Request {
    Size size;
    Size offset = StepKind::kNowhere;
  };
  std::vector<std::uint32_t> chosen() const;  // the requests that get places

  std::vector<Request> requests_;
  std::vector<StepKind::LearnedEnd> ends_;
  Size height_ = 0;
  bool outlived_ = false;        // planned blocks outlive the step
  bool follows_itself_ = false;  // as planned
  bool stale_ = true;
};

}  // namespace allocbench

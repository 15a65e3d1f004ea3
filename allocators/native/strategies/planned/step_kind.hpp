// strategies/planned/step_kind.hpp: one kind of step, a step that repeats exactly, and the places
// of their blocks.
// SPDX-License-Identifier: Apache-2.0
//
// Steps of one kind have the same number of requests, and their blocks end at the same points of
// the sequence. Sizes differ, because batches have different lengths. The first request whose size
// varies is the key. The size of every other request is modelled as a linear function of the key's
// size that is at or above all observed sizes; for the tensors of a model this is mostly exact. So
// a step is planned twice, for the smallest and for the largest key, with the same vertical order
// of blocks, and the places of a step with a key in between are interpolated. Beyond the largest
// key they are extrapolated. If only one step has been observed, its plan is stretched. When a kind
// is planned again, blocks keep their vertical order unless that wastes bytes.
//
// A request whose sizes are not linear is erratic and gets no place. If many large requests are
// erratic, as in models that route tokens to experts, no request gets a place, because pages would
// only move back and forth between blocks with and without places.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/types.hpp"
#include "parts/node.hpp"
#include "strategies/planned/periodic.hpp"

namespace allocbench {

class StepKind {
 public:
  static constexpr Size kUnit = 512;    // bytes: places are multiples of it
  static constexpr Size kLeast = kMiB;  // smaller requests get no place
  static constexpr Size kNowhere = ~Size{0};
  static constexpr std::size_t kMostPlanned = 8192;  // requests of a step, the largest ones

  enum class When : std::uint8_t { kUnknown, kThisStep, kNextStep, kLater };
  struct End {  // of a block
    When when = When::kUnknown;
    std::uint32_t last = 0;  // number of requests made before the free, in the step of the free
    bool operator==(End const&) const = default;
  };
  // The end of the blocks of one request, learned from several steps. A single different step
  // changes nothing: a new end is adopted after it has occurred twice in a row.
  struct LearnedEnd {
    End end = {};
    End last = {};           // in the last step
    bool see(End observed);  // true if a plan must change
    bool operator==(LearnedEnd const&) const = default;
    // True if each block is freed before the next step makes the same request.
    bool in_time(std::size_t number) const {
      return end.when == When::kThisStep || (end.when == When::kNextStep && end.last <= number);
    }
  };
  struct Observed {  // a request of a step
    Size size;
    End end = {};
    Size offset = kNowhere;  // of its place
  };
  class Step {  // the requests of a step
   public:
    std::size_t size() const { return requests_.size(); }
    Observed& operator[](std::size_t number) { return requests_[number]; }
    Observed const& operator[](std::size_t number) const { return requests_[number]; }
    Observed& back() { return requests_.back(); }
    void push_back(Observed const& request) { requests_.push_back(request); }
    void clear() {
      requests_.clear();
      large_.clear();
    }
    std::span<Observed const> requests() const { return requests_; }
    // The numbers of the requests that may have places, of a step that has ended.
    std::span<std::uint32_t const> large() const {
      if (large_.empty()) find_large();
      return large_;
    }

   private:
    void find_large() const;

    std::vector<Observed> requests_;
    mutable std::vector<std::uint32_t> large_;
  };

  // The position of a step between the two plans, as far as it is known.
  struct Pose {
    double proportion = 1;  // 0 at the smallest key, 1 at the largest
    double stretch = 1;
  };

  std::size_t size() const { return requests_.size(); }
  std::uint64_t count() const { return count_; }  // number of steps observed

  // True if the size of a request is within the observed sizes.
  bool agrees(std::size_t request, Size size) const {
    return request < requests_.size() && requests_[request].agrees(size);
  }
  // True if a request rules out this kind. After only one step, it is unknown which sizes vary.
  bool contradicts(std::size_t request, Size size) const {
    if (request >= requests_.size()) return true;
    Request const& known = requests_[request];
    return count_ > 1 && !known.erratic && !known.agrees(size);
  }
  // True if a finished step is of this kind: it has the same number of requests, and nine in ten of
  // the large ones end where they ended before.
  bool alike(Step const& step) const;

  // The planned offset of a request, or kNowhere. Updates the pose from the request's size.
  Size place(std::size_t request, Size size, Pose& pose) const;
  // Bytes from the lowest offset to the highest end of a step with this pose; 0 without places.
  Size height(Pose const& pose) const;
  // The pose of a step with these requests so far.
  Pose pose(Step const& begun) const;

  void see_sizes(Step const& step);
  // Updates the ends of blocks: without `others`, of the blocks that ended in their own step; with
  // `others`, which is called after the next step, of all other blocks.
  void see_ends(Step const& step, bool others);
  void see_known_step() { ++count_; }  // instead of both, for a step from which nothing is learned
  // Changes whenever something is learned, apart from the number of steps, and with each plan.
  std::uint64_t version() const { return version_; }

  bool varies() const { return key_ != kNone; }  // its steps differ in sizes

  bool stale() const { return stale_; }  // changed since it was planned
  std::uint64_t price();                 // of making a plan, in comparisons
  void plan(PeriodicMemo& memo);

 private:
  struct Request {
    Size low, high;  // bytes at the smallest and the largest key
    LearnedEnd end = {};
    bool erratic = false;  // its sizes are not linear
    bool planned = false;
    Size low_offset = 0, high_offset = 0;

    bool agrees(Size size) const {
      return std::min(low, high) <= size && size <= std::max(low, high);
    }
    Size size_at(double proportion) const;
    bool see_size(Size size, double proportion);
  };
  struct Chosen {                         // the requests that get places
    std::vector<std::uint32_t> requests;  // by number
    std::size_t kept = 0;                 // the number at the front that already have places
  };

  double proportion(Size key) const;
  Chosen chosen() const;
  void find_key(Step const& step);
  void widen(Step const& step, bool below);

  std::vector<Request> requests_;
  std::uint64_t count_ = 0;  // number of steps observed
  std::uint64_t version_ = 0;
  std::uint64_t price_ = 0;
  std::uint64_t priced_ = ~std::uint64_t{0};  // the version that has this price
  Index key_ = kNone;                         // the request; kNone while no size varies
  Size low_key_ = 0, high_key_ = 0;
  Size low_height_ = 0, high_height_ = 0;
  bool stale_ = true;
  bool from_scratch_ = false;  // the next plan keeps no place
};

// A step that is expected to repeat with exactly these sizes. It is planned when it is about to be
// repeated for the first time, so steps that never repeat cost no plan. Blocks of the previous step
// that are still alive, its tails, keep their places, and the plan avoids them until they are
// freed. A step can follow several others, or itself with blocks that it loads ahead, such as the
// next batch, in two places in turn. So it has a plan for each set of tails, and a request has the
// same place whenever its step begins in the same situation.
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

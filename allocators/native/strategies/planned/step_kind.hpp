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
#include <functional>
#include <span>
#include <utility>
#include <vector>

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
    End last = {};  // in the last step

    // true if a plan must change
    bool see(End observed) {
      bool const twice = observed == last;
      last = observed;
      if (observed == end || (end.when != When::kUnknown && !twice)) return false;
      bool const matters = end.when != When::kUnknown || observed.when != When::kLater;
      end = observed;
      return matters;
    }

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
    // Calls `visit` with the number and the end of each of these blocks: without `others`, of those
    // that ended in this step; with `others`, after the next step, of all other blocks.
    template <class Visit>
    void each_end(std::span<std::uint32_t const> numbers, bool others, Visit visit) const {
      for (std::uint32_t const number : numbers) {
        End end = requests_[number].end;
        if (others != (end.when != When::kThisStep)) continue;
        if (end.when == When::kUnknown) end.when = When::kLater;
        visit(number, end);
      }
    }
    // True if nine in ten of these blocks that are known to end in their step, by `end_of(number)`,
    // ended there.
    template <class EndOf>
    bool ends_as(std::span<std::uint32_t const> numbers, EndOf end_of) const {
      std::size_t known = 0, same = 0;
      for (std::uint32_t const number : numbers) {
        End const& end = end_of(number);
        if (end.when != When::kThisStep) continue;
        ++known;
        same += requests_[number].end == end;
      }
      return 10 * same >= 9 * known;
    }
    // The numbers of the requests that may have places, of a step that has ended.
    std::span<std::uint32_t const> large() const {
      if (large_.empty()) find_large();
      return large_;
    }

   private:
    void find_large() const {
      large_.resize(requests_.size());
      std::size_t count = 0;
      for (std::uint32_t number = 0; number < requests_.size(); ++number) {
        large_[count] = number;
        count += requests_[number].size >= kLeast;
      }
      large_.resize(count);
    }

    std::vector<Observed> requests_;
    mutable std::vector<std::uint32_t> large_;
  };

  // Keeps the largest requests, by `size(number)`: at most so many get places.
  template <class SizeOf>
  static void keep_largest(std::vector<std::uint32_t>& requests, SizeOf size) {
    if (requests.size() <= kMostPlanned) return;
    std::ranges::nth_element(requests, requests.begin() + kMostPlanned, std::greater(), size);
    requests.resize(kMostPlanned);
  }

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
  bool alike(Step const& step) const {
    return requests_.size() == step.size() &&
           step.ends_as(step.large(), [this](std::uint32_t number) -> End const& {
             return requests_[number].end.end;
           });
  }

  // The planned offset of a request, or kNowhere. Updates the pose from the request's size.
  Size place(std::size_t request, Size size, Pose& pose) const {
    if (request >= requests_.size()) return kNowhere;
    Request const& known = requests_[request];
    if (request == key_) pose.proportion = proportion(size);
    if (!known.planned) return kNowhere;
    if (key_ != kNone) {
      Size const line = known.size_at(pose.proportion);
      if (size > line + kUnit || far(size, line)) return kNowhere;
      return round_up(between(known.low_offset, known.high_offset, pose.proportion), kUnit);
    }
    auto const ratio = static_cast<double>(size) / static_cast<double>(known.high);
    if (ratio > pose.stretch) pose.stretch = ratio * kSpare;
    if (pose.stretch > kMostStretch) return kNowhere;
    return round_up(static_cast<Size>(static_cast<double>(known.high_offset) * pose.stretch),
                    kUnit);
  }

  // Bytes from the lowest offset to the highest end of a step with this pose; 0 without places.
  Size height(Pose const& pose) const {
    return static_cast<Size>(
        static_cast<double>(between(low_height_, high_height_, pose.proportion)) * pose.stretch);
  }

  // The pose of a step with these requests so far.
  Pose pose(Step const& begun) const {
    if (key_ == kNone || key_ >= begun.size()) return {};
    return {proportion(begun[key_].size), 1};
  }

  void see_sizes(Step const& step) {
    ++count_;
    if (requests_.empty()) {
      ++version_;
      requests_.reserve(step.size());
      for (Observed const& request : step.requests())
        requests_.push_back({request.size, request.size});
      return;
    }
    find_key(step);
    if (key_ == kNone) return;
    Size const key = step[key_].size;
    if (key < low_key_ || key > high_key_) return widen(step, key < low_key_);
    double const where = proportion(key);
    for (std::size_t number = 0; number < step.size(); ++number) {
      Request& request = requests_[number];
      auto const before = std::pair(request.low, request.erratic);
      stale_ |= request.see_size(step[number].size, where);
      if (std::pair(request.low, request.erratic) != before) ++version_;
    }
  }

  // Updates the ends of blocks: `others` as in Step::each_end.
  void see_ends(Step const& step, bool others) {
    if (requests_.size() != step.size()) return;
    step.each_end(step.large(), others, [this](std::uint32_t number, End end) {
      Request& request = requests_[number];
      LearnedEnd const before = request.end;
      bool const matters = request.end.see(end);
      if (request.end != before) ++version_;
      if (!matters) return;
      request.planned = false;
      stale_ = true;
    });
  }

  void see_known_step() { ++count_; }  // instead of both, for a step from which nothing is learned
  // Changes whenever something is learned, apart from the number of steps, and with each plan.
  std::uint64_t version() const { return version_; }

  bool varies() const { return key_ != kNone; }  // its steps differ in sizes

  bool stale() const { return stale_; }  // changed since it was planned

  // of making a plan, in comparisons
  std::uint64_t price() {
    if (priced_ != version_) {
      auto const [requests, kept] = chosen();
      price_ = (requests.size() * requests.size() - kept * kept) / 4 + kept * kInOrder;
      priced_ = version_;
    }
    return price_;
  }

  // Blocks that had places before keep their order. If that wastes bytes, the kind stays stale, and
  // the next call plans everything from scratch, at its own price.
  void plan(PeriodicMemo& memo) {
    auto const [requests, kept] = chosen();
    Size const spare = key_ == kNone ? 0 : 2 * kUnit;  // for rounding between the two plans
    std::vector<Arc> low, high;
    std::vector<Size> old_offsets;
    for (std::uint32_t const number : requests) {
      Request const& request = requests_[number];
      low.push_back({round_up(request.low, kUnit) + spare, number, request.end.end.last});
      high.push_back({round_up(request.high, kUnit) + spare, number, request.end.end.last});
      if (old_offsets.size() < kept) old_offsets.push_back(request.high_offset);
    }
    Plan high_plan = plan_in_order(std::span(high).first(kept), old_offsets);
    if (kept < requests.size()) high_plan = memo.plan(high, kUnit, high_plan.offsets);
    Size const load = max_load(high);
    from_scratch_ = kept > 0 && high_plan.height > load + load / kWaste;
    ++version_;
    if (from_scratch_) return;
    Plan const low_plan = key_ == kNone ? high_plan : plan_in_order(low, high_plan.offsets);
    for (Request& request : requests_) request.planned = false;
    for (std::size_t number = 0; number < requests.size(); ++number) {
      Request& request = requests_[requests[number]];
      request.planned = true;
      request.low_offset = low_plan.offsets[number];
      request.high_offset = high_plan.offsets[number];
    }
    low_height_ = low_plan.height;
    high_height_ = high_plan.height;
    stale_ = false;
  }

 private:
  static constexpr Size kMostErratic =
      16;  // no places if more than 1/16 of the large bytes are erratic
  static constexpr std::uint64_t kInOrder = 128;  // comparisons per block that keeps its order
  static constexpr Size kWaste = 2048;            // keeping the order may waste 1/2048 of the load
  static constexpr Size kErratic = 256;           // a size may deviate from the line by 1/256 of it
  static constexpr double kMostStretch = 2;
  static constexpr double kSpare =
      1 + 1.0 / 1024;  // factor of a stretch, because offsets are rounded up
  // Interpolates between the values at 0 and at 1, or extrapolates.
  static Size between(Size at_0, Size at_1, double proportion) {
    auto const a = static_cast<double>(at_0), b = static_cast<double>(at_1);
    return static_cast<Size>(std::max(0.0, a + (b - a) * proportion));
  }

  // True if the size deviates from the line by more than rounding explains.
  static bool far(Size size, Size line) {
    return std::max(size, line) - std::min(size, line) > std::max(line / kErratic, StepKind::kUnit);
  }

  struct Request {
    Size low, high;  // bytes at the smallest and the largest key
    LearnedEnd end = {};
    bool erratic = false;  // its sizes are not linear
    bool planned = false;
    Size low_offset = 0, high_offset = 0;

    bool agrees(Size size) const {
      return std::min(low, high) <= size && size <= std::max(low, high);
    }
    Size size_at(double proportion) const { return between(low, high, proportion); }

    // Raises the line to a size above it; a difference of up to a unit is rounding. A size far from
    // the line makes the request erratic. Returns true if the plan must change.
    bool see_size(Size size, double proportion) {
      if (size == low && size == high) return false;
      Size const line = size_at(proportion);
      bool const was_erratic = std::exchange(erratic, erratic || far(size, line));
      if (size <= line + kUnit) return erratic && !was_erratic;
      low += size - line;
      high += size - line;
      return !was_erratic;
    }
  };
  struct Chosen {                         // the requests that get places
    std::vector<std::uint32_t> requests;  // by number
    std::size_t kept = 0;                 // the number at the front that already have places
  };

  double proportion(Size key) const {
    if (low_key_ == high_key_) return 1;
    return (static_cast<double>(key) - static_cast<double>(low_key_)) /
           static_cast<double>(high_key_ - low_key_);
  }

  Chosen chosen() const {
    std::vector<std::uint32_t> requests;
    Size erratic = 0, all = 0;  // bytes
    for (std::uint32_t number = 0; number < requests_.size(); ++number) {
      Request const& request = requests_[number];
      Size const largest = std::max(request.low, request.high);
      if (largest < kLeast) continue;
      all += largest;
      if (request.erratic)
        erratic += largest;
      else if (request.end.in_time(number))
        requests.push_back(number);
    }
    if (erratic > all / kMostErratic) return {};
    keep_largest(requests, [&](std::uint32_t number) { return requests_[number].high; });
    auto const kept = [&](std::uint32_t number) {
      return requests_[number].planned && !from_scratch_;
    };
    auto const others = std::ranges::stable_partition(requests, kept);
    return {requests, requests.size() - others.size()};
  }

  // Finds the first request whose size varies. A new key starts from the largest observed sizes.
  void find_key(Step const& step) {
    std::size_t number = 0;
    std::size_t const end = key_ == kNone ? step.size() : key_;
    while (number < end && step[number].size == requests_[number].high) ++number;
    if (number == end) return;
    for (Request& request : requests_)
      request.low = request.high = std::max(request.low, request.high);
    key_ = static_cast<Index>(number);
    low_key_ = high_key_ = requests_[number].high;
    ++version_;
    stale_ = true;
  }

  // Extends each line to the key of this step, which is smaller or larger than all earlier keys. A
  // line that would then pass below its old end is raised.
  void widen(Step const& step, bool below) {
    Size& end_key = below ? low_key_ : high_key_;
    Size const old_key = std::exchange(end_key, step[key_].size);
    double const where = proportion(old_key);
    for (std::size_t number = 0; number < step.size(); ++number) {
      Request& request = requests_[number];
      Size const old_end = std::exchange(below ? request.low : request.high, step[number].size);
      request.see_size(old_end, where);
    }
    ++version_;
    stale_ = true;
  }

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

  explicit ExactStep(StepKind::Step const& step)
      : sizes_(step.size()), large_(step.large().begin(), step.large().end()), ends_(step.size()) {
    std::ranges::transform(step.requests(), sizes_.begin(), &StepKind::Observed::size);
  }

  std::size_t size() const { return sizes_.size(); }
  std::span<Size const> sizes() const { return sizes_; }  // by request
  // True if the step began with these requests.
  bool begins_with(StepKind::Step const& step) const {
    if (step.size() > size()) return false;
    for (std::size_t number = 0; number < step.size(); ++number)
      if (step[number].size != sizes_[number]) return false;
    return true;
  }

  // True if the step had these requests, and nine in ten of the large blocks that ended in it ended
  // where they ended before.
  bool alike(StepKind::Step const& step) const {
    return step.size() == size() && begins_with(step) &&
           step.ends_as(large_, [this](std::uint32_t number) -> StepKind::End const& {
             return ends_[number].end;
           });
  }

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

  // number of blocks in the last step
  std::size_t ended_in(StepKind::When when) const {
    return static_cast<std::size_t>(std::ranges::count(
        large_, when, [this](std::uint32_t number) { return ends_[number].last.when; }));
  }

  // As StepKind::see_ends. Returns true if something was learned.
  bool see_ends(StepKind::Step const& step, bool others) {
    bool learned = false;
    step.each_end(large_, others, [&](std::uint32_t number, StepKind::End end) {
      StepKind::LearnedEnd const before = ends_[number];
      stale_ |= ends_[number].see(end);
      learned |= ends_[number] != before;
    });
    return learned;
  }

  // Selects the plan for these blocks of the step before, which are still alive. Returns false if
  // no such plan has been made since the step last changed.
  bool select(std::vector<Tail> const& tails) {
    if (stale_) return false;
    auto const plan = std::ranges::find(plans_, hash_of(tails), &TailsPlan::tails);
    if (plan == plans_.end()) return false;
    current_ = static_cast<std::size_t>(plan - plans_.begin());
    return true;
  }

  // of making a plan, in comparisons
  std::uint64_t price() const {
    std::uint64_t const count = chosen().size();
    return kSearches * count * count / 4;
  }

  // Makes the plan for these tails. It is in the vertical order of a similar step, if there is one
  // and its blocks then end below `highest`.
  void plan(std::vector<Tail> const& tails, ExactStep const* like, Size highest,
            PeriodicMemo& memo) {
    std::vector<Arc> arcs;
    std::vector<Size> offsets;
    Size enough = 0;  // no better plan than one of this height is searched
    for (Tail const& tail : tails) {
      arcs.push_back({tail.size, 0, std::min(tail.last, static_cast<std::uint32_t>(size()))});
      offsets.push_back(tail.offset);
      enough = std::max(enough, tail.offset + tail.size);
    }
    auto const requests = chosen();
    // What a block that outlives the step overlaps in the next step concerns the plan of that step.
    for (std::uint32_t const number : requests)
      arcs.push_back({sizes_[number], number, outlives(number) ? 0 : ends_[number].end.last});
    Size const load = max_load(arcs);
    enough = std::max(enough, load + load / kMostWaste);

    Plan best{{}, kNothing};
    auto const keep_lower = [&best](Plan&& plan) {
      if (plan.height < best.height) best = std::move(plan);
    };
    if (like != nullptr && tails.empty()) {
      enough = std::max(enough, highest);
      std::vector<Size> order;
      for (std::uint32_t const number : requests) order.push_back(like->place(number));
      for (Arc& arc : arcs) arc.size = round_up(arc.size, StepKind::kUnit);
      keep_lower(plan_in_order(arcs, order));
    }
    // Tails leave gaps for large blocks that blocks of equal duration fill better.
    auto const [usual, other] = tails.empty() ? std::pair(ArcOrder::kSize, ArcOrder::kDuration)
                                              : std::pair(ArcOrder::kDuration, ArcOrder::kSize);
    for (ArcOrder const order : {usual, other})
      if (best.height > enough) keep_lower(memo.plan(arcs, StepKind::kUnit, offsets, order));

    TailsPlan& made = unused_plan();
    made = {hash_of(tails), std::vector<Size>(size(), StepKind::kNowhere), best.height};
    for (std::size_t index = 0; index < requests.size(); ++index)
      made.offsets[requests[index]] = best.offsets[tails.size() + index];
  }

  bool planned() const { return !plans_.empty(); }
  // True if blocks of a request outlive the same request in the next step, so that they cannot have
  // the same place in each step.
  bool alternates() const {
    for (std::uint32_t const number : large_)
      if (outlives(number) && ends_[number].end.last > number) return true;
    return false;
  }

 private:
  static constexpr Size kMostWaste = 128;  // a plan that wastes 1/128 of the load is good enough
  static constexpr std::uint64_t kSearches =
      3;  // what a plan costs at most, in searches for places
  static constexpr Size kNothing = ~Size{0};
  static std::uint64_t hash_of(std::vector<ExactStep::Tail> const& tails) {
    Hash hash;
    for (ExactStep::Tail const& tail : tails)
      for (std::uint64_t const value : {tail.size, tail.offset, std::uint64_t{tail.last}})
        hash.add(value);
    return hash.value();
  }

  struct TailsPlan {
    std::uint64_t tails;        // a hash
    std::vector<Size> offsets;  // by request
    Size height;
  };
  static constexpr std::size_t kMostPlans = 8;

  bool outlives(std::size_t request) const {
    return ends_[request].end.when == StepKind::When::kNextStep;
  }

  // the requests that get places, by number
  std::vector<std::uint32_t> chosen() const {
    std::vector<std::uint32_t> chosen;
    for (std::uint32_t const number : large_)
      if (outlives(number) || ends_[number].end.when == StepKind::When::kThisStep)
        chosen.push_back(number);
    StepKind::keep_largest(chosen, [&](std::uint32_t number) { return sizes_[number]; });
    return chosen;
  }

  // Makes it the current one.
  TailsPlan& unused_plan() {
    if (stale_) plans_.clear();
    stale_ = false;
    if (plans_.size() < kMostPlans) {
      current_ = plans_.size();
      return plans_.emplace_back();
    }
    current_ = (current_ + 1) % kMostPlans;
    return plans_[current_];
  }

  std::vector<Size> sizes_;           // by request
  std::vector<std::uint32_t> large_;  // the requests that may have places
  std::vector<StepKind::LearnedEnd> ends_;
  std::vector<TailsPlan> plans_;
  std::size_t current_ = 0;  // plan
  bool stale_ = true;        // the step has changed since it was planned
};

}  // namespace allocbench

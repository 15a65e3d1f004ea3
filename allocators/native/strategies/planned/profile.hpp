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

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/options.hpp"
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
  [[gnu::noinline]] void begin_step() {
    earn();
    if (previous_exact_ != kNone && !ended_as_expected()) learn_from_others();
    previous_known_ = as_expected();
    Index const exact = previous_known_ ? expected_ : learn_exact();
    Index const kind = previous_known_ ? exacts_[exact].own.kind : learn(exact);
    if (previous_known_) kinds_[kind].steps.see_known_step();
    kinds_[kind].used = step_;
    note_exact(exact, kind);
    if (previous_ != kNone) kinds_[previous_].see_next(kind);
    follows_ &= kind == guess_;
    if (opening_ == kNone) opening_ = kind;
    previous_ = kind;
    std::swap(previous_step_, this_step_);
    this_step_.clear();
    earned_ = 0;
    ends_ = previous_ends_ = {};
    expect_exact(exact);
    expect(kinds_[kind].next != kNone ? kinds_[kind].next : most_common());
  }

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
  void begin_run() {
    begin_step();
    learn_from_others();
    credit_ = repeated_credit_ = ~std::uint64_t{0};
    for (Kind& kind : kinds_) plan(kind);
    credit_ = kFirstCredit;
    repeated_credit_ = kMostCredit;
    exacts_.clear();
    history_.clear();
    follow(kNone);
    previous_exact_ = previous_ = kNone;
    previous_step_.clear();
    follows_ = true;
    expect(opening_);
  }

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
    // A new successor replaces the known one after it has followed twice in a row.
    void see_next(Index kind) {
      if (next == kNone || odd_next == kind) next = kind;
      odd_next = kind;
    }
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
  // A request that is not the next one of an exact step with a plan.
  [[gnu::noinline]] Place other_request(Size size) {
    std::size_t const number = this_step_.size();
    if (number == kMostRequests) return {};
    if (number >= sizes_.size() || sizes_[number] != size) {
      expected_ = kNone;
      sizes_ = {};
    }
    this_step_.push_back({size});
    Place place{ticket(number, size)};
    bool const was_exact = exact_ != kNone;
    if (was_exact || number == 0 || number == kConvincing) {
      if (match_exact()) {
        place.offset = this_step_.back().offset = places_[number];
        return place;
      }
      if (was_exact || number == 0) resume_guess();
    }
    if (guess_ == kNone) return place;
    if (kinds_[guess_].steps.contradicts(number, size)) guess_again();
    place.offset = this_step_.back().offset = kinds_[guess_].steps.place(number, size, pose_);
    return place;
  }

  [[gnu::noinline]] void see_free(Ticket ticket) {
    auto const last = static_cast<std::uint32_t>(this_step_.size());
    auto const see = [&](StepKind::Observed& request, When when, Index exact, Ends& ends) {
      request.end = {when, last};
      ends.see(exact != kNone && exacts_[exact].step.ended_so(ticket.request, request.end));
    };
    if (ticket.step == step_)
      see(this_step_[ticket.request], When::kThisStep, expected_, ends_);
    else if (ticket.step + 1 == step_ && ticket.request < previous_step_.size())
      see(previous_step_[ticket.request], When::kNextStep, previous_exact_, previous_ends_);
  }

  // True if this step was the expected one, so that nothing is learned from it.
  bool as_expected() const {
    if (expected_ == kNone || missed_) return false;
    Exact const& exact = exacts_[expected_];
    if (this_step_.size() != exact.step.size() || !knows(exact.own, ends_)) return false;
    auto const may_be = [&](Kind const& kind) { return kind.steps.size() == exact.step.size(); };
    return exact.own.kind == guess_ || std::ranges::count_if(kinds_, may_be) == 1;
  }

  // True if nothing is learned from the blocks of the previous step that outlived it.
  bool ended_as_expected() const {
    Known const& others = exacts_[previous_exact_].others;
    return previous_known_ && others.kind == previous_ && knows(others, previous_ends_);
  }
  bool knows(Known const& known, Ends const& ends) const {
    return known.kind != kNone && kinds_[known.kind].steps.version() == known.version &&
           known.ends == ends.seen && ends.seen == ends.known;
  }
  void learn_from_others() {
    Exact& exact = exacts_[previous_exact_];
    StepKind& kind = kinds_[previous_].steps;
    std::uint64_t const version = kind.version();
    bool const learned = exact.step.see_ends(previous_step_, true);
    kind.see_ends(previous_step_, true);
    if (learned) exact.own = {};
    exact.others = {};
    if (!learned && kind.version() == version)
      exact.others = {previous_, version, exact.step.ended_in(When::kNextStep)};
  }

  // This step agrees with an exact step that has a plan, or with none.
  void follow(Index exact) {
    exact_ = exact;
    expected_ = kNone;
    sizes_ = places_ = {};
    if (exact_ == kNone) return;
    sizes_ = exacts_[exact_].step.sizes();
    places_ = exacts_[exact_].step.places();
  }

  // Expects the step that followed earlier. The step that ended was number `exact`.
  void expect_exact(Index exact) {
    if (history_.size() == kLongHistory)
      history_.erase(history_.begin(), history_.begin() + kLongHistory / 2);
    history_.push_back(exact);
    previous_exact_ = exact;
    mismatched_ = 0;
    Index const next = next_exact();
    bool const has_plan = next != kNone && plan_exact(next);
    follow(has_plan ? next : kNone);
    if (next == kNone) return;
    expected_ = next;
    if (has_plan) return;
    sizes_ = exacts_[next].step.sizes();
    mismatched_ = ~std::uint64_t{0};
  }

  // The step that followed the longest sequence of steps that is like the last steps; the most
  // recent one on ties.
  Index next_exact() const {
    std::size_t longest = 0;
    Index next = kNone;
    for (std::size_t end = history_.size() - 1; end > 0 && longest < kConvincingSteps; --end) {
      std::size_t like = 0;
      while (like < std::min(end, kConvincingSteps) &&
             history_[end - 1 - like] == history_[history_.size() - 1 - like])
        ++like;
      if (like <= longest) continue;
      longest = like;
      next = history_[end];
    }
    return next;
  }

  // Updates the exact step that has just ended, which is of this kind. `learned`: the kind has
  // learned something from it.
  void see_exact(Index exact, Index kind, bool learned) {
    Exact& known = exacts_[exact];
    if (known.step.see_ends(this_step_, false)) {
      known.others = {};
      learned = true;
    }
    known.own = {};
    if (!learned)
      known.own = {kind, kinds_[kind].steps.version(), known.step.ended_in(When::kThisStep)};
    known.outliving.clear();
    for (std::uint32_t number = 0; number < this_step_.size(); ++number) {
      auto const& [size, end, offset] = this_step_[number];
      bool const may_have_place = size >= StepKind::kLeast || offset != kNowhere;
      if (may_have_place && end.when != When::kThisStep) known.outliving.push_back(number);
    }
    known.kind = kind;
  }

  // Counts another occurrence of the exact step, which was of this kind.
  void note_exact(Index exact, Index kind) {
    Exact& known = exacts_[exact];
    bool const guessed = guess_ != kNone && kinds_[guess_].steps.size() > 0;
    known.missed |= missed_ || (guessed && guess_ != kind);
    missed_ = false;
    ++known.times;
    known.used = step_ + 1;
  }

  // Plans an exact step for the blocks that are still alive, if it has no such plan. Returns false
  // if the step has no plan: because the credit is too low, or because all steps of its kind have
  // the same sizes and the kind's own plan.
  bool plan_exact(Index exact) {
    Exact const& known = exacts_[exact];
    ExactStep& step = exacts_[exact].step;
    bool const alternates = known.times >= kOften && step.alternates();
    bool const varies = known.kind != kNone && kinds_[known.kind].steps.varies();
    if (!known.missed && !varies && !alternates) return false;
    earn();
    auto const tails = this->tails();
    if (step.select(tails)) return true;
    std::uint64_t const price = step.price();
    if (price > repeated_credit_) return false;
    repeated_credit_ -= price;
    ExactStep const* like = nullptr;
    Size highest = 0;
    for (Exact const& other : exacts_) {
      if (!other.step.planned()) continue;
      bool const alike = other.kind == known.kind && other.step.size() == step.size();
      if (alike && (like == nullptr || other.step.height() > like->height())) like = &other.step;
      highest = std::max(highest, other.step.height());
    }
    step.plan(tails, like, highest, memo_);
    plans_ += price > 0;
    return true;
  }

  // The blocks of the previous step that outlive it and have places. A block that has missed its
  // place counts as if it were there, as it will be the next time.
  std::vector<ExactStep::Tail> tails() const {
    std::vector<ExactStep::Tail> tails;
    if (previous_exact_ == kNone) return tails;
    ExactStep const& previous = exacts_[previous_exact_].step;
    for (std::uint32_t const number : exacts_[previous_exact_].outliving) {
      auto const& [size, end, actual] = previous_step_[number];
      Size const offset = actual == kNowhere ? previous.place(number) : actual;
      if (offset == kNowhere) continue;
      StepKind::End const& expected = previous.end(number);
      bool const known = expected.when == When::kNextStep;
      if (!known || expected.last > 0)
        tails.push_back({size, offset, known ? expected.last : kForever});
    }
    return tails;
  }

  // Finds another exact step that begins with the requests of this one. Each is tried at most once
  // per step, and once more after `kConvincing` requests.
  bool match_exact() {
    bool const convincing = this_step_.size() > kConvincing;
    if (this_step_.size() == kConvincing + 1) mismatched_ = 0;
    if (exact_ != kNone) mismatched_ |= std::uint64_t{1} << exact_;
    exact_ = kNone;
    places_ = {};
    for (Index exact = 0; exact < exacts_.size(); ++exact) {
      std::uint64_t const bit = std::uint64_t{1} << exact;
      if ((mismatched_ & bit) != 0) continue;
      bool const often = exacts_[exact].times > 1;  // or plans would often be made in vain
      if ((often || convincing) && exacts_[exact].step.begins_with(this_step_)) {
        if (plan_exact(exact)) {
          follow(exact);
          return true;
        }
        mismatched_ = ~std::uint64_t{0};
        break;
      }
      mismatched_ |= bit;
    }
    return false;
  }

  // Finds or creates the exact step that has just ended.
  Index learn_exact() {
    auto const is_this = [&](Exact const& exact) { return exact.step.alike(this_step_); };
    Index number = exact_;
    if (number == kNone || !is_this(exacts_[number]))
      number = static_cast<Index>(std::ranges::find_if(exacts_, is_this) - exacts_.begin());
    if (number == exacts_.size()) {
      number = unused_exact();
      exacts_[number] = {ExactStep(this_step_)};
    }
    return number;
  }

  // An empty exact step. Forgets those not seen for the longest time if there are too many.
  Index unused_exact() {
    std::size_t remembered = this_step_.size();
    for (Exact const& exact : exacts_) remembered += exact.step.size();
    if (exacts_.size() < kMostExact && remembered <= kMostRemembered) {
      exacts_.push_back({});
      return static_cast<Index>(exacts_.size() - 1);
    }
    for (;;) {
      auto const last_used = [&](Exact const& exact) {
        bool const kept = exact.step.size() == 0 || &exact == &exacts_[previous_exact_];
        return kept ? ~std::uint32_t{0} : exact.used;
      };
      auto const oldest = std::ranges::min_element(exacts_, {}, last_used);
      auto const number = static_cast<Index>(oldest - exacts_.begin());
      remembered -= oldest->step.size();
      std::ranges::replace(history_, number, kNone);
      *oldest = {};
      if (remembered <= kMostRemembered) return number;
    }
  }

  // Continues with the predicted kind after a step has stopped repeating exactly.
  void resume_guess() {
    if (guess_ == kNone) return;
    plan_guess();
    StepKind const& steps = kinds_[guess_].steps;
    for (std::size_t number = 0; number < this_step_.size(); ++number)
      if (steps.contradicts(number, this_step_[number].size)) return guess_again();
    pose_ = steps.pose(this_step_);
  }

  // Switches to a kind that agrees with all requests of this step so far, if there is one. Each
  // kind is tried at most once per step.
  void guess_again() {
    rejected_ |= 1u << guess_;
    if (static_cast<std::size_t>(std::popcount(rejected_)) == kinds_.size()) return;
    for (Index kind = 0; kind < kinds_.size(); ++kind) {
      if ((rejected_ & 1u << kind) != 0) continue;
      StepKind const& steps = kinds_[kind].steps;
      std::size_t agreed = 0;
      while (agreed < this_step_.size() && steps.agrees(agreed, this_step_[agreed].size)) ++agreed;
      if (agreed == this_step_.size()) {
        plan(kinds_[kind]);
        guess_ = kind;
        pose_ = steps.pose(this_step_);
        return;
      }
      rejected_ |= 1u << kind;
    }
  }

  // The kind with the most requests so far; the most recent on ties.
  Index most_common() const {
    auto const rank = [](Kind const& kind) {
      return std::pair(kind.steps.count() * kind.steps.size(), kind.used);
    };
    return static_cast<Index>(std::ranges::max_element(kinds_, {}, rank) - kinds_.begin());
  }
  // Finds or creates the kind of the step that ends, and updates it and the exact step.
  Index learn(Index exact) {
    Index number = guess_;
    if (number == kNone || !kinds_[number].steps.alike(this_step_)) {
      auto const kind =
          std::ranges::find_if(kinds_, [&](Kind const& k) { return k.steps.alike(this_step_); });
      number = kind != kinds_.end() ? static_cast<Index>(kind - kinds_.begin()) : unused_kind();
    }
    StepKind& kind = kinds_[number].steps;
    std::uint64_t const version = kind.version();
    kind.see_sizes(this_step_);
    kind.see_ends(this_step_, false);
    see_exact(exact, number, kind.version() != version);
    return number;
  }

  // An empty kind: a new one or, if there are too many, the least recently seen one, emptied.
  Index unused_kind() {
    auto oldest = static_cast<Index>(kinds_.size());
    if (oldest < kMostKinds) {
      kinds_.emplace_back();
      return oldest;
    }
    oldest = previous_ == 0 ? 1 : 0;
    for (Index kind = 0; kind < kinds_.size(); ++kind)
      if (kind != previous_ && kinds_[kind].used < kinds_[oldest].used) oldest = kind;
    for (Kind& kind : kinds_) {
      if (kind.next == oldest) kind.next = kNone;
      if (kind.odd_next == oldest) kind.odd_next = kNone;
    }
    for (Exact& exact : exacts_) {
      if (exact.kind == oldest) exact.kind = kNone;
      exact.own = exact.others = {};
    }
    if (opening_ == oldest) opening_ = kNone;
    kinds_[oldest] = {};
    return oldest;
  }

  void earn() {
    std::uint64_t const requests = this_step_.size() - std::exchange(earned_, this_step_.size());
    if (requests == 0) return;
    credit_ = std::min(credit_ + requests * kEarned, kMostCredit);
    repeated_credit_ = std::min(repeated_credit_ + requests * kEarnedForRepeated, kMostCredit);
  }
  // Plans a kind that has changed, if the credit suffices.
  void plan(Kind& kind) {
    earn();
    std::uint64_t& credit = kind.has_repeated() ? repeated_credit_ : credit_;
    while (kind.steps.stale()) {
      std::uint64_t const price = kind.steps.price();
      if (price > credit) return;
      credit -= price;
      kind.steps.plan(memo_);
      plans_ += price > 0 && !kind.steps.stale();
    }
  }

  // Plans the predicted kind, unless it has occurred once and is long.
  void plan_guess() {
    Kind& kind = kinds_[guess_];
    if (kind.has_repeated() || kind.steps.price() <= kCheap) plan(kind);
  }
  // Predicts the kind of the next step. The kind needs a plan only if the step is not expected to
  // repeat exactly.
  void expect(Index kind) {
    guess_ = kind;
    if (exact_ == kNone) plan_guess();
    pose_ = {};
    rejected_ = 0;
    ++step_;
  }

  using When = StepKind::When;

  static constexpr std::size_t kMostKinds = 32;
  static constexpr std::size_t kMostRequests = std::size_t{1} << 20;  // of a step
  static constexpr std::size_t kMostExact = 64;                       // a bit each in `mismatched_`
  static constexpr std::size_t kMostRemembered = std::size_t{1} << 20;  // requests of exact steps
  static constexpr std::uint32_t kOften = 3;                            // repetitions
  static constexpr std::size_t kLongHistory = 512;                      // steps
  static constexpr std::size_t kConvincingSteps = 16;  // a sequence this long decides
  // A step that begins with this many requests of an earlier step probably repeats it.
  static constexpr std::uint32_t kConvincing = 128;
  static constexpr std::uint64_t kEarned = 16,
                                 kEarnedForRepeated = 64;  // comparisons, by a request
  static constexpr std::uint64_t kCheap = 1024;  // comparisons: the price of a plan for 64 blocks
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

}  // namespace allocbench

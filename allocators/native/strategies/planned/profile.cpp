// strategies/planned/profile.cpp: the requests of each step of a program and their planned places.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/planned/profile.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace allocbench {
namespace {

using When = StepKind::When;

constexpr std::size_t kMostKinds = 32;
constexpr std::size_t kLongest = std::size_t{1} << 20;  // most requests of a step
constexpr std::uint64_t kEarned = 16;                   // comparisons earned by each request
constexpr std::uint64_t kEarnedForRepeated = 64;
constexpr std::uint64_t kCheap = 1024;  // comparisons: the price of a plan for 64 blocks

}  // namespace

// A request that is not the next one of an exact step with a plan.
Profile::Place Profile::other_request(Size size) {
  std::size_t const number = this_step_.size();
  if (number == kLongest) return {};
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

void Profile::see_free(Ticket ticket) {
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

void Profile::earn() {
  std::uint64_t const requests = this_step_.size() - std::exchange(earned_, this_step_.size());
  if (requests == 0) return;
  credit_ = std::min(credit_ + requests * kEarned, kMostCredit);
  repeated_credit_ = std::min(repeated_credit_ + requests * kEarnedForRepeated, kMostCredit);
}

// Switches to a kind that agrees with all requests of this step so far, if there is one. Each kind
// is tried at most once per step.
void Profile::guess_again() {
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

void Profile::begin_step() {
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

void Profile::begin_run() {
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

// Predicts the kind of the next step. The kind needs a plan only if the step is not expected to
// repeat exactly.
void Profile::expect(Index kind) {
  guess_ = kind;
  if (exact_ == kNone) plan_guess();
  pose_ = {};
  rejected_ = 0;
  ++step_;
}

// Plans the predicted kind, unless it has occurred once and is long.
void Profile::plan_guess() {
  Kind& kind = kinds_[guess_];
  if (kind.has_repeated() || kind.steps.price() <= kCheap) plan(kind);
}

// A new successor replaces the known one after it has followed twice in a row.
void Profile::Kind::see_next(Index kind) {
  if (next == kNone || odd_next == kind) next = kind;
  odd_next = kind;
}

// The kind with the most requests so far; the most recent on ties.
Index Profile::most_common() const {
  auto const rank = [](Kind const& kind) {
    return std::pair(kind.steps.count() * kind.steps.size(), kind.used);
  };
  return static_cast<Index>(std::ranges::max_element(kinds_, {}, rank) - kinds_.begin());
}

// Finds or creates the kind of the step that ends, and updates it and the exact step.
Index Profile::learn(Index exact) {
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
Index Profile::unused_kind() {
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

// Plans a kind that has changed, if the credit suffices.
void Profile::plan(Kind& kind) {
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

}  // namespace allocbench

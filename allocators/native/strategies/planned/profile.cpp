// strategies/planned/profile.cpp: what a program requests in each step, and the planned places.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/planned/profile.hpp"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

namespace allocbench {
namespace {

using When = StepKind::When;

constexpr std::size_t kMostKinds = 32;
constexpr std::size_t kLongest = std::size_t{1} << 20;  // most requests of a step
constexpr std::uint64_t kPaid = 64;                     // comparisons paid for by each request

}  // namespace

Profile::Place Profile::request(Size size) {
  auto const number = static_cast<std::uint32_t>(now_.size());
  if (number == kLongest) return {};
  now_.push_back({size});
  credit_ = std::min(credit_ + kPaid, kMostCredit);
  Place place;
  if (size >= StepKind::kLeast) place.ticket = {step_, number};
  if (guess_ == kNone) return place;
  if (kinds_[guess_].steps.contradicts(number, size)) guess_again();
  place.offset = kinds_[guess_].steps.place(number, size, pose_);
  return place;
}

void Profile::freed(Ticket ticket) {
  if (ticket.request == kNone) return;
  auto const last = static_cast<std::uint32_t>(now_.size());
  if (ticket.step == step_)
    now_[ticket.request].end = {When::kThisStep, last};
  else if (ticket.step + 1 == step_ && ticket.request < last_.size())
    last_[ticket.request].end = {When::kNextStep, last};
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
    while (agreed < now_.size() && steps.agrees(agreed, now_[agreed].size)) ++agreed;
    if (agreed == now_.size()) {
      plan(kinds_[kind]);
      guess_ = kind;
      pose_ = steps.pose(now_);
      return;
    }
    rejected_ |= 1u << kind;
  }
}

void Profile::begin_step() {
  if (before_ != kNone) kinds_[before_].steps.see_ends(last_, true);
  Index const kind = learn();
  if (before_ != kNone) kinds_[before_].see_next(kind);
  follows_ &= kind == guess_;
  if (opening_ == kNone) opening_ = kind;
  before_ = kind;
  std::swap(last_, now_);
  expect(kinds_[kind].next != kNone ? kinds_[kind].next : usual(false));
}

void Profile::begin_run() {
  begin_step();
  kinds_[before_].steps.see_ends(last_, true);
  credit_ = ~std::uint64_t{0};
  for (Kind& kind : kinds_) plan(kind);
  credit_ = kMostCredit;
  before_ = kNone;
  last_.clear();
  follows_ = true;
  expect(opening_);
}

// If the kind cannot be planned yet, the most usual planned kind takes its place.
void Profile::expect(Index kind) {
  plan(kinds_[kind]);
  guess_ = kinds_[kind].steps.stale() ? usual(true) : kind;
  pose_ = {};
  rejected_ = 0;
  now_.clear();
  ++step_;
}

// A successor other than the known one is adopted when it is seen twice in a row.
void Profile::Kind::see_next(Index kind) {
  if (next == kNone || odd_next == kind) next = kind;
  odd_next = kind;
}

// The kind with the most requests so far (planned kinds first if `planned`); the most recent on
// ties.
Index Profile::usual(bool planned) const {
  auto const rank = [&](Kind const& kind) {
    return std::tuple(planned && kind.steps.planned(), kind.steps.seen() * kind.steps.size(),
                      kind.used);
  };
  return static_cast<Index>(std::ranges::max_element(kinds_, {}, rank) - kinds_.begin());
}

// Finds or creates the kind of the step that ends, and updates it with the step.
Index Profile::learn() {
  Index number = guess_;
  if (number == kNone || !kinds_[number].steps.alike(now_)) {
    auto const kind =
        std::ranges::find_if(kinds_, [&](Kind const& k) { return k.steps.alike(now_); });
    number = kind != kinds_.end() ? static_cast<Index>(kind - kinds_.begin()) : unused_kind();
  }
  Kind& kind = kinds_[number];
  kind.steps.see_sizes(now_);
  kind.steps.see_ends(now_, false);
  kind.used = step_;
  return number;
}

// An empty kind: a new one, or the one that has not been seen for longest.
Index Profile::unused_kind() {
  auto oldest = static_cast<Index>(kinds_.size());
  if (oldest < kMostKinds) {
    kinds_.emplace_back();
    return oldest;
  }
  oldest = before_ == 0 ? 1 : 0;
  for (Index kind = 0; kind < kinds_.size(); ++kind)
    if (kind != before_ && kinds_[kind].used < kinds_[oldest].used) oldest = kind;
  for (Kind& kind : kinds_) {
    if (kind.next == oldest) kind.next = kNone;
    if (kind.odd_next == oldest) kind.odd_next = kNone;
  }
  if (opening_ == oldest) opening_ = kNone;
  kinds_[oldest] = {};
  return oldest;
}

// Plans a kind that has changed, if there is enough credit.
void Profile::plan(Kind& kind) {
  while (kind.steps.stale()) {
    std::uint64_t const price = kind.steps.price();
    if (price > credit_) return;
    credit_ -= price;
    kind.steps.plan();
    plans_ += price > 0 && !kind.steps.stale();
  }
}

}  // namespace allocbench

// strategies/planned/profile_exact.cpp: the steps that are expected to repeat exactly.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "planners/plan.hpp"
#include "strategies/planned/profile.hpp"

namespace allocbench {
namespace {

using When = StepKind::When;

constexpr std::size_t kMostExact = 64;                         // one bit each in `mismatched_`
constexpr std::uint32_t kOften = 3;                            // repetitions
constexpr std::size_t kLongHistory = 512;                      // steps
constexpr std::size_t kConvincingSteps = 16;                   // a sequence this long decides
constexpr std::size_t kMostRemembered = std::size_t{1} << 20;  // requests of all exact steps

}  // namespace

// True if this step was the expected one, so that nothing is learned from it.
bool Profile::as_expected() const {
  if (expected_ == kNone || missed_) return false;
  Exact const& exact = exacts_[expected_];
  if (this_step_.size() != exact.step.size() || !knows(exact.own, ends_)) return false;
  auto const may_be = [&](Kind const& kind) { return kind.steps.size() == exact.step.size(); };
  return exact.own.kind == guess_ || std::ranges::count_if(kinds_, may_be) == 1;
}

// True if nothing is learned from the blocks of the previous step that outlived it.
bool Profile::ended_as_expected() const {
  Known const& others = exacts_[previous_exact_].others;
  return previous_known_ && others.kind == previous_ && knows(others, previous_ends_);
}

bool Profile::knows(Known const& known, Ends const& ends) const {
  return known.kind != kNone && kinds_[known.kind].steps.version() == known.version &&
         known.ends == ends.seen && ends.seen == ends.known;
}

void Profile::learn_from_others() {
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
void Profile::follow(Index exact) {
  exact_ = exact;
  expected_ = kNone;
  sizes_ = places_ = {};
  if (exact_ == kNone) return;
  sizes_ = exacts_[exact_].step.sizes();
  places_ = exacts_[exact_].step.places();
}

// Expects the step that followed earlier. The step that ended was number `exact`.
void Profile::expect_exact(Index exact) {
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

// The step that followed the longest sequence of steps that is like the last steps; the most recent
// one on ties.
Index Profile::next_exact() const {
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

// Plans an exact step for the blocks that are still alive, if it has no such plan. Returns false if
// the step has no plan: because the credit is too low, or because all steps of its kind have the
// same sizes and the kind's own plan.
bool Profile::plan_exact(Index exact) {
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
std::vector<ExactStep::Tail> Profile::tails() const {
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
bool Profile::match_exact() {
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

// Continues with the predicted kind after a step has stopped repeating exactly.
void Profile::resume_guess() {
  if (guess_ == kNone) return;
  plan_guess();
  StepKind const& steps = kinds_[guess_].steps;
  for (std::size_t number = 0; number < this_step_.size(); ++number)
    if (steps.contradicts(number, this_step_[number].size)) return guess_again();
  pose_ = steps.pose(this_step_);
}

// Finds or creates the exact step that has just ended.
Index Profile::learn_exact() {
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

// Updates the exact step that has just ended, which is of this kind. `learned`: the kind has
// learned something from it.
void Profile::see_exact(Index exact, Index kind, bool learned) {
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
void Profile::note_exact(Index exact, Index kind) {
  Exact& known = exacts_[exact];
  bool const guessed = guess_ != kNone && kinds_[guess_].steps.size() > 0;
  known.missed |= missed_ || (guessed && guess_ != kind);
  missed_ = false;
  ++known.times;
  known.used = step_ + 1;
}

// An empty exact step. Forgets those not seen for the longest time if there are too many.
Index Profile::unused_exact() {
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

}  // namespace allocbench

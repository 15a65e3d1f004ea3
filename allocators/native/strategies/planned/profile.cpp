// strategies/planned/profile.cpp: the requests of each step of a program and their planned places.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/planned/profile.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "planners/planners.hpp"
#include "strategies/planned/step_finder.hpp"

namespace allocbench {
namespace {

using When = StepKind::When;

constexpr std::size_t kMostKinds = 32;
constexpr std::size_t kMostRequests = std::size_t{1} << 20;  // most requests of a step
constexpr std::uint64_t kEarned = 16;                        // comparisons earned by each request
constexpr std::uint64_t kEarnedForRepeated = 64;
constexpr std::uint64_t kCheap = 1024;  // comparisons: the price of a plan for 64 blocks

}  // namespace

// A request that is not the next one of an exact step with a plan.
Profile::Place Profile::other_request(Size size) {
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

namespace {

constexpr std::string_view kHeader = "id,lower,upper,size,offset";
constexpr std::string_view kSteps = ",step";
constexpr Size kLargest = Size{1} << 62;

struct Line {
  std::uint64_t lower, upper;
  Size size;
  std::uint64_t step;
};

struct Run {
  std::vector<Line> blocks;  // by `lower`
  bool has_steps;
};

// Parses the numbers after the id, which may itself contain commas; false if they are not numbers.
bool parse(std::string_view line, bool has_steps, Line& block) {
  std::array<std::uint64_t, 5> numbers = {};
  for (std::size_t field = has_steps ? 5 : 4; field-- > 0;) {
    std::size_t const comma = line.rfind(',');
    if (comma == line.npos) return false;
    std::string_view const text = line.substr(comma + 1);
    auto const [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), numbers[field]);
    if (error != std::errc() || end != text.data() + text.size()) return false;
    line = line.substr(0, comma);
  }
  block = {numbers[0], numbers[1], numbers[2], numbers[4]};
  return block.lower < block.upper && block.size > 0 && block.size <= kLargest;
}

Run read(Options const& given, std::string_view option) {
  std::ifstream file(given.text(option));
  if (!file) given.reject(option, "must be a readable file");
  std::string line;
  auto const next_line = [&] {
    if (!std::getline(file, line)) return false;
    if (line.ends_with('\r')) line.pop_back();
    return true;
  };
  next_line();
  Run run{{}, line == std::string(kHeader) + std::string(kSteps)};
  if (!run.has_steps && line != kHeader)
    given.reject(option, "is not a plan file: line 1 is not " + std::string(kHeader) + "[,step]");
  for (std::size_t number = 2; next_line(); ++number) {
    Line block;
    if (!parse(line, run.has_steps, block))
      given.reject(option, "is not a plan file: line " + std::to_string(number) +
                               " must have an id, lower, a larger upper, a size and an offset" +
                               (run.has_steps ? " and a step" : ""));
    run.blocks.push_back(block);
  }
  if (run.blocks.empty()) given.reject(option, "is a plan file without blocks");
  std::ranges::stable_sort(run.blocks, {}, &Line::lower);
  if (run.has_steps && !std::ranges::is_sorted(run.blocks, {}, &Line::step))
    given.reject(option, "is not a plan file: its steps are out of order");
  return run;
}

}  // namespace

Profile read_profile(Options const& given, std::string_view option) {
  Run const run = read(given, option);
  std::vector<std::size_t> frees(run.blocks.size());
  for (std::size_t i = 0; i < frees.size(); ++i) frees[i] = i;
  std::ranges::stable_sort(frees, {}, [&](std::size_t i) { return run.blocks[i].upper; });

  Profile profile;
  StepFinder finder;
  std::vector<Profile::Ticket> tickets(run.blocks.size());
  Size live = 0;
  std::uint64_t step = 0;
  auto next_free = frees.begin();
  auto const free_until = [&](std::uint64_t instant) {
    for (; next_free != frees.end() && run.blocks[*next_free].upper <= instant; ++next_free) {
      profile.freed(tickets[*next_free]);
      live -= run.blocks[*next_free].size;
    }
  };
  for (std::size_t i = 0; i < run.blocks.size(); ++i) {
    Line const& block = run.blocks[i];
    free_until(block.lower);
    if (run.has_steps ? block.step != step : finder.begins(block.size, live)) profile.begin_step();
    step = block.step;
    tickets[i] = profile.request(block.size).ticket;
    live += block.size;
  }
  free_until(~std::uint64_t{0});
  profile.begin_run();
  return profile;
}

}  // namespace allocbench

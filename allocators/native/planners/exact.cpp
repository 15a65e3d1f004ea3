// planners/exact.cpp: searches for the lowest plan within a time limit, with a lower bound.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "planners/beam.hpp"
#include "planners/ejection.hpp"
#include "planners/fast_planners.hpp"
#include "planners/planners.hpp"
#include "planners/skyline.hpp"

namespace allocbench {
namespace {

constexpr double kSecondsBetweenReports = 0.1;
constexpr std::size_t kExactBlocks = 1024;  // of a stretch that is cut without any loss
constexpr int kDeepest = 64;  // levels of cuts, to limit the time for deeply nested lifetimes

// The lowest of the plans by execution order, from the peak, by size and by best fit, which are
// made in this order until one is at most `enough` bytes high. Once `stop` returns true, planners
// that have not finished are left out. If none has, the one by execution order stops to reuse
// memory.
Plan plan_fast(std::span<Lifetime const> lifetimes, Size alignment, Size enough, Stop const& stop) {
  Plan best = *plan_in_execution_order(lifetimes, alignment, stop);
  auto const keep = [&](std::optional<Plan> plan) {
    if (plan && plan->height < best.height) best = std::move(*plan);
    return best.height <= enough || stop();
  };
  // The planners by size and by best fit take quadratic time.
  for (std::size_t stack = 0; stack < kStacks; ++stack)
    if (keep(plan_from_peak(lifetimes, alignment, stack, stop))) return best;
  if (!keep(plan_greedy_by_size(lifetimes, alignment, stop)))
    keep(plan_best_fit(lifetimes, alignment, stop));
  return best;
}

// The best plan of a piece so far, and the searches that lower it. Heights include the base of the
// piece.
class PieceSearch {
 public:
  // The piece has these blocks, at any offset from `base` up. `all`: all lifetimes. `plan`: if not
  // null, a plan of all of them, which are all in this piece; otherwise the piece starts with the
  // plan of the fast planners.
  PieceSearch(std::vector<std::uint32_t> blocks, Size base, std::span<Lifetime const> all,
              Size alignment, Plan const* plan, Stop const& stop)
      : blocks_(std::move(blocks)), base_(base), alignment_(alignment) {
    for (auto const block : blocks_) {
      lifetimes_.push_back(all[block]);
      if (plan) offsets_.push_back(plan->offsets[block]);
      unit_ = std::gcd(unit_, round_up(all[block].size, alignment));
    }
    lower_bound_ = height_after(least_height(lifetimes_, alignment) - 1);
    if (!plan) offsets_ = plan_fast(lifetimes_, alignment, lower_bound_, stop).offsets;
    height_ = height_of(offsets_);
  }

  Size height() const { return base_ + height_; }
  // No plan of the blocks above the base is lower.
  Size lower_bound() const { return base_ + lower_bound_; }

  void write_to(std::vector<Size>& offsets) const {
    for (std::size_t i = 0; i < blocks_.size(); ++i) offsets[blocks_[i]] = base_ + offsets_[i];
  }

  // One round of searches for a lower plan, but not below `enough`, a lower bound of the whole
  // plan. The effort doubles from round to round. In small pieces, every other round tries goals
  // between the lowest and the best plan, until one fails. Larger pieces are searched after repair,
  // for a plan of the lowest goal, and after the first round only where repair has found no lower
  // plan.
  void improve(Size enough, Stop const& stop) {
    int const round = rounds_++;
    enough -= std::min(enough, base_);
    if (is_small()) {
      search(round, enough, stop);
      repair(round, enough, stop);
    } else if (lifetimes_.size() <= kMostBlocks) {
      bool const repaired = repair(round, enough, stop);
      if (round == 0 || !repaired) search(round, enough, stop);
    } else {
      reorder(round, enough, stop);
      repair(round, enough, stop);
    }
  }

 private:
  using Rule = Skyline::Rule;
  using Start = Ejection::Start;

  // Effort of the first round.
  static constexpr double kFirstNodes = 1000;  // node limit of a short depth-first search
  static constexpr double kLongNodes = 4000;   // of a long one
  static constexpr double kFirstMoves = 8000;  // of a repair
  static constexpr int kFirstOrders = 4;       // of blocks, in large pieces
  static constexpr int kOrders = 2;            // in each later round
  static constexpr std::size_t kBlocksOfFirstOrders = 100'000;
  static constexpr double kFirstWidth = 64;  // of a beam, for 300 blocks
  static constexpr double kBlocksOfFirstWidth = 300;
  static constexpr double kEffortAfterRepair = 0.25;  // of the searches of larger pieces
  static constexpr double kLeastFreeShare = 0.005;    // of the height, for beams
  static constexpr int kRoundsBetweenGoals = 2;    // from one round with several goals to the next
  static constexpr Size kFinest = 1024;            // stops within 1/1024 of the best height
  static constexpr std::size_t kSmallPiece = 600;  // in blocks; larger ones are repaired first
  // Blocks of a depth-first search, to limit the recursion.
  static constexpr std::size_t kMostBlocks = 8192;
  static constexpr double kExponents[] = {1, 0.5, 1.5, 2};  // of the area in the rules of beams
  static constexpr Rule::Sections kSections[] = {
      Rule::Sections::kFewestBranches, Rule::Sections::kLowest, Rule::Sections::kFirstBox};
  static constexpr Rule::Blocks kBlocks[] = {
      Rule::Blocks::kLongest, Rule::Blocks::kLargest, Rule::Blocks::kMostBytesTime,
      Rule::Blocks::kHighestLoad, Rule::Blocks::kLoadLongest};

  // The number with most zeros at the end of its binary form in (low, high]: limits are often
  // round.
  static Size roundest(Size low, Size high) { return high & ~(std::bit_floor(low ^ high) - 1); }
  static bool tries_several_goals(int round) {
    return round % kRoundsBetweenGoals == kRoundsBetweenGoals - 1;
  }

  struct Searches {
    Skyline skyline;
    Beam beam;
  };

  void reorder(int round, Size enough, Stop const& stop) {
    // An order takes quadratic time.
    auto const most = static_cast<int>(kBlocksOfFirstOrders / lifetimes_.size()) + 1;
    int const initial = std::min(kFirstOrders, most), later = std::min(kOrders, most);
    auto const [first, count] =
        round == 0 ? std::pair(0, initial) : std::pair(initial + (round - 1) * later, later);
    for (int attempt = first; attempt < first + count; ++attempt) {
      if (height_ <= std::max(lower_bound_, enough) || stop()) return;
      auto plan = plan_reordered(lifetimes_, alignment_, static_cast<std::uint64_t>(attempt), stop);
      if (plan && plan->height < height_) keep(std::move(plan->offsets));
    }
  }

  void search(int round, Size enough, Stop const& stop) {
    Searches searches{Skyline(lifetimes_, alignment_), Beam(lifetimes_, alignment_)};
    for (Size goal = std::max(lower_bound_, enough); goal < height_ && !stop();) {
      Answer const answer = attempt(searches, goal, round, stop);
      if (answer == Answer::kNone) lower_bound_ = std::max(lower_bound_, height_after(goal));
      if (answer == Answer::kFound && goal <= std::max(lower_bound_, enough)) return;
      if (answer != Answer::kFound) failed_goal_ = goal;
      if (answer == Answer::kUnknown && !(is_small() && tries_several_goals(round))) return;
      if (answer != Answer::kNone && height_ - failed_goal_ <= std::max(Size{1}, height_ / kFinest))
        return;
      goal = answer == Answer::kNone ? std::max(lower_bound_, enough)
                                     : roundest(base_ + failed_goal_, height() - 1) - base_;
    }
  }

  // Returns whether it has found a lower plan. Larger pieces have two repairs that take turns; one
  // of them begins without any block.
  bool repair(int round, Size enough, Stop const& stop) {
    double const moves = kFirstMoves * std::exp2(round);
    auto const blocks = static_cast<double>(lifetimes_.size());
    if (is_small()) return move(Start::kPlan, moves + 2 * blocks, enough, stop);
    double const turn = kFirstMoves + blocks / 2;
    bool lowered = false;
    for (double left = moves + blocks / 2; left > 0 && !stop(); left -= turn) {
      lowered |= move(Start::kEmpty, turn, enough, stop);
      lowered |= move(Start::kPlan, turn, enough, stop);
    }
    return lowered;
  }

  bool move(Start start, double moves, Size enough, Stop const& stop) {
    enough = std::max(lower_bound_, enough);
    if (height_ <= enough || stop()) return false;
    auto& repair = start == Start::kPlan ? repair_ : rebuild_;
    if (!repair) {
      repair.emplace(lifetimes_, unit_, start);
      if (stop()) return false;
    }
    auto plan = repair->lower({offsets_, height_}, enough, static_cast<std::uint64_t>(moves), stop);
    if (plan) keep(std::move(plan->offsets));
    return plan.has_value();
  }

  bool is_small() const { return lifetimes_.size() <= kSmallPiece; }

  // The time of a beam grows with the square of the number of blocks, and so does that of a
  // depth-first search that can place all of them.
  double share_of_effort() const {
    double const ratio = kBlocksOfFirstWidth / static_cast<double>(lifetimes_.size());
    return std::min(1.0, ratio * ratio);
  }

  // Most of the depth-first searches are short, with many orders of the boxes: a search seldom gets
  // out of an early mistake, and another order may not make it. A long one can prove that there is
  // no plan. Pieces that are not small have the long one only, because repair makes better use of
  // the time.
  Answer attempt(Searches& searches, Size goal, int round, Stop const& stop) {
    double const effort = std::exp2(round) * (is_small() ? 1 : kEffortAfterRepair);
    double const orders = is_small() ? std::sqrt(effort) : 0;
    auto const fit = [&](Rule const& rule, double nodes) {
      auto const limit = static_cast<std::uint64_t>(nodes) + 2 * lifetimes_.size();
      Answer const answer = searches.skyline.fit(goal, rule, limit, stop);
      if (answer == Answer::kFound) keep(searches.skyline.offsets());
      return answer;
    };
    for (int order = 0; order < static_cast<int>(orders); ++order) {
      bool const plain = order == 0 && tries_several_goals(round);
      auto const seed = plain ? 0 : orders_tried_++;
      for (auto const blocks : kBlocks)
        for (auto const sections : kSections) {
          Answer const answer = fit({sections, blocks, seed}, kFirstNodes * orders);
          if (answer != Answer::kUnknown || stop()) return answer;
        }
    }
    Rule const rule{kSections[round % std::size(kSections)], kBlocks[round % std::size(kBlocks)]};
    Answer const answer = fit(rule, kLongNodes * effort * (is_small() ? 1 : share_of_effort()));
    if (answer != Answer::kUnknown || stop()) return answer;
    bool const beams = searches.beam.free_share(goal) >= kLeastFreeShare;
    bool const found = beams && attempt_beams(searches.beam, goal, effort, stop);
    return found ? Answer::kFound : Answer::kUnknown;
  }

  bool attempt_beams(Beam& beam, Size goal, double effort, Stop const& stop) {
    double const width = kFirstWidth * effort * share_of_effort();
    for (double const exponent : kExponents) {
      if (width < 1 || stop()) return false;
      if (!beam.fit(goal, exponent, static_cast<std::size_t>(width), stop)) continue;
      keep(beam.offsets());
      return true;
    }
    return false;
  }

  void keep(std::vector<Size> offsets) {
    offsets_ = std::move(offsets);
    height_ = height_of(offsets_);
  }

  Size height_of(std::vector<Size> const& offsets) const {
    Size height = 0;
    for (std::size_t block = 0; block < offsets.size(); ++block)
      height = std::max(height, offsets[block] + lifetimes_[block].size);
    return height;
  }

  // The smallest height above `height` that a plan can have, given that offsets are sums of rounded
  // sizes.
  Size height_after(Size height) const {
    Size next = ~Size{0};
    for (Lifetime const& block : lifetimes_) {
      Size const offset = height < block.size ? 0 : round_down(height - block.size, unit_) + unit_;
      next = std::min(next, offset + block.size);
    }
    return next;
  }

  std::vector<std::uint32_t> blocks_;
  std::vector<Lifetime> lifetimes_;
  std::vector<Size> offsets_;
  Size base_;
  Size alignment_;
  Size unit_ = 0;  // offsets are multiples of it
  Size height_ = 0, lower_bound_ = 0;
  int rounds_ = 0;
  Size failed_goal_ = 0;            // the highest goal for which no plan was found
  std::uint64_t orders_tried_ = 0;  // in short depth-first searches
  std::optional<Ejection> repair_, rebuild_;
};

// Blocks that share no instant with other pieces. They may take any offset from `base` up.
struct Piece {
  std::vector<std::uint32_t> blocks;
  Size base;
};

struct Pieces {
  std::vector<Piece> pieces;
  std::vector<Size> offsets;  // one per lifetime; only those of settled blocks are valid
  Size height = 0;            // of the settled blocks
  bool lossless = true;  // the lowest plan that keeps the settled blocks is the lowest of all plans
};

// Cuts time where no block is alive. In each stretch between cuts, a block that is alive together
// with all others, such as the weights of a model, is settled: it goes to the bottom, where it can
// change places with the blocks below it in any plan. The others are cut further. The exchange
// costs nothing if the size of the settled block is a multiple of the alignment. In stretches of
// more than `exact_blocks` blocks, others are settled too, which can cost less than `alignment`
// bytes.
class Cutter {
 public:
  Cutter(std::span<Lifetime const> lifetimes, Size alignment, std::size_t exact_blocks)
      : lifetimes_(lifetimes), alignment_(alignment), exact_blocks_(exact_blocks) {
    result_.offsets.resize(lifetimes.size());
  }

  Pieces run() {
    cut_time(sorted_by(&Lifetime::first, lifetimes_), 0, 0);
    return std::move(result_);
  }

 private:
  // `blocks`: in the order of their begin.
  void cut_time(std::vector<std::uint32_t> const& blocks, Size base, int depth) {
    std::vector<std::uint32_t> stretch;
    std::uint32_t end = 0;
    for (std::uint32_t const block : blocks) {
      if (!stretch.empty() && lifetimes_[block].first >= end)
        settle(std::exchange(stretch, {}), base, depth);
      end = std::max(end, lifetimes_[block].last);
      stretch.push_back(block);
    }
    if (!stretch.empty()) settle(std::move(stretch), base, depth);
  }

  void settle(std::vector<std::uint32_t> blocks, Size base, int depth) {
    std::uint32_t first_end = kForever, last_begin = 0;
    for (std::uint32_t const block : blocks) {
      first_end = std::min(first_end, lifetimes_[block].last);
      last_begin = std::max(last_begin, lifetimes_[block].first);
    }
    bool const exact = blocks.size() <= exact_blocks_;
    auto const settled = std::ranges::stable_partition(blocks, [&](auto block) {
      auto const& [size, first, last] = lifetimes_[block];
      bool const spans = first < first_end && last > last_begin;
      return !spans || (exact && rounding(block) != 0);
    });
    if (settled.empty() || depth == kDeepest) {
      result_.pieces.push_back({std::move(blocks), base});
      return;
    }
    std::ranges::stable_sort(settled, {}, [&](auto block) { return rounding(block); });
    for (std::uint32_t const block : settled) {
      result_.lossless = result_.lossless && rounding(block) == 0;
      result_.offsets[block] = base;
      result_.height = std::max(result_.height, base + lifetimes_[block].size);
      base += round_up(lifetimes_[block].size, alignment_);
    }
    blocks.erase(settled.begin(), settled.end());
    cut_time(blocks, base, depth + 1);
  }

  Size rounding(std::uint32_t block) const {
    Size const size = lifetimes_[block].size;
    return round_up(size, alignment_) - size;
  }

  std::span<Lifetime const> lifetimes_;
  Size alignment_;
  std::size_t exact_blocks_;
  Pieces result_;
};

// The best plan so far, and the time that it has taken.
class Search {
 public:
  Search(std::span<Lifetime const> lifetimes, Size alignment, SearchBudget const& budget)
      : lifetimes_(lifetimes), alignment_(alignment), budget_(budget), start_(budget.clock()) {}

  BoundedPlan run() {
    if (lifetimes_.empty()) return {};
    lower_bound_ = least_height(lifetimes_, alignment_);
    best_.height = 0;  // until there is a plan, that of blocks side by side
    for (Lifetime const& block : lifetimes_) best_.height += round_up(block.size, alignment_);
    best_ = plan_fast(lifetimes_, alignment_, lower_bound_, stop_);
    if (best_.height > lower_bound_ && !stop_()) search();
    return {std::move(best_), lower_bound_};
  }

 private:
  void search() {
    Pieces pieces = Cutter(lifetimes_, alignment_, kExactBlocks).run();
    for (Piece& piece : pieces.pieces) {
      bool const whole = piece.blocks.size() == lifetimes_.size();
      searches_.emplace_back(std::move(piece.blocks), piece.base, lifetimes_, alignment_,
                             whole ? &best_ : nullptr, stop_);
      if (stop_()) return;
    }
    update(pieces);
    while (best_.height > lower_bound_ && !searches_.empty() && !stop_()) {
      // Only a lower plan of the highest piece can lower the whole plan.
      PieceSearch& highest = *std::ranges::max_element(searches_, {}, &PieceSearch::height);
      if (highest.height() <= std::max(lower_bound_, highest.lower_bound())) break;
      highest.improve(lower_bound_, stop_);
      update(pieces);
    }
  }

  // Takes over the plans and the bounds of the pieces.
  void update(Pieces const& pieces) {
    Size height = pieces.height, bound = 0;
    for (PieceSearch const& piece : searches_) {
      height = std::max(height, piece.height());
      bound = std::max(bound, piece.lower_bound());
    }
    if (pieces.lossless) lower_bound_ = std::max(lower_bound_, bound);
    if (height >= best_.height) return;
    best_ = {pieces.offsets, height};
    for (PieceSearch const& piece : searches_) piece.write_to(best_.offsets);
  }

  bool out_of_time() {
    double const seconds = budget_.clock() - start_;
    if (seconds - reported_ >= kSecondsBetweenReports) {
      reported_ = seconds;
      stopped_ = stopped_ || !budget_.report({seconds, best_.height, lower_bound_});
    }
    return stopped_ = stopped_ || seconds >= budget_.seconds;
  }

  std::span<Lifetime const> lifetimes_;
  Size alignment_;
  SearchBudget const& budget_;
  double start_;
  double reported_ = 0;
  bool stopped_ = false;
  Stop const stop_ = [this] { return out_of_time(); };
  Plan best_;
  Size lower_bound_ = 0;
  std::vector<PieceSearch> searches_;
};

}  // namespace

double SearchBudget::monotonic() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

BoundedPlan plan_exact(std::span<Lifetime const> lifetimes, Size alignment,
                       SearchBudget const& budget) {
  return Search(lifetimes, alignment, budget).run();
}

}  // namespace allocbench

// planners/exact.cpp: searches for the lowest plan within a time limit, with a lower bound.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "planners/piece_search.hpp"
#include "planners/planners.hpp"

namespace allocbench {
namespace {

constexpr double kSecondsBetweenReports = 0.1;
constexpr std::size_t kExactBlocks = 1024;  // of a stretch that is cut without any loss
constexpr int kDeepest = 64;  // levels of cuts, to limit the time for deeply nested lifetimes

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

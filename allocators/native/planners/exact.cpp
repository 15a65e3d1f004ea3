// planners/exact.cpp: searches for the lowest plan within a time limit, with a lower bound.
// SPDX-License-Identifier: Apache-2.0
#include "planners/exact.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "planners/fast_plan.hpp"
#include "planners/load.hpp"
#include "planners/piece_search.hpp"
#include "planners/pieces.hpp"

namespace allocbench {
namespace {

constexpr double kSecondsBetweenReports = 0.1;
constexpr std::size_t kExactBlocks = 1024;  // of a stretch that is cut without any loss

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
    Pieces pieces = cut(lifetimes_, alignment_, kExactBlocks);
    for (Piece& piece : pieces.pieces) {
      bool const whole = piece.blocks.size() == lifetimes_.size();
      searches_.emplace_back(std::move(piece), lifetimes_, alignment_, whole ? &best_ : nullptr,
                             stop_);
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

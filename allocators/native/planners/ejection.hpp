// planners/ejection.hpp: lowers a plan by moving the blocks that are in the way.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "planners/placed_blocks.hpp"
#include "planners/planners.hpp"

namespace allocbench {

// The lifetimes must outlive this object.
class Overlaps {
 public:
  explicit Overlaps(std::span<Lifetime const> lifetimes)
      : lifetimes_(lifetimes), order_(sorted_by(&Lifetime::first, lifetimes)) {
    std::vector<std::uint32_t> alive;
    for (std::size_t i = 0, next = 0; i < order_.size(); ++i) {
      Lifetime const& block = lifetimes[order_[i]];
      if (i == next) {
        std::erase_if(alive, [&](auto other) { return lifetimes[other].last <= block.first; });
        lists_.push_back({i, alive});
        next = i + std::max(kLeastBetweenLists, alive.size());  // so that lists have O(n) entries
      }
      alive.push_back(order_[i]);
      begins_.push_back(block.first);
    }
  }

  // Calls `visit` for each other block that is alive together with `block`. Takes time for the
  // blocks alive when it begins, and for those that begin while it is alive.
  template <class Visit>
  void visit(std::uint32_t block, Visit visit) const {
    auto const [size, first, last] = lifetimes_[block];
    auto const later =
        static_cast<std::size_t>(std::ranges::upper_bound(begins_, first) - begins_.begin());
    auto const list = std::ranges::lower_bound(lists_, later, {}, &List::begin) - 1;
    auto const consider = [&](std::uint32_t other) {
      if (other != block && lifetimes_[other].last > first) visit(other);
    };
    for (std::uint32_t const other : list->alive) consider(other);
    for (std::size_t i = list->begin; i < order_.size() && begins_[i] < last; ++i)
      consider(order_[i]);
  }

 private:
  static constexpr std::size_t kLeastBetweenLists = 64;

  struct List {
    std::size_t begin;                 // in order_
    std::vector<std::uint32_t> alive;  // of the blocks before it
  };

  std::span<Lifetime const> lifetimes_;
  std::vector<std::uint32_t> order_, begins_;  // blocks in the order of their begin
  std::vector<List> lists_;
};

// Local search for large inputs: a move looks only at the blocks alive together with one block.
//
// The search has a goal, a height somewhat below that of the best plan so far. The blocks that end
// above it are taken out of the plan, and put back one by one, each into the lowest gap that is
// large enough. A block for which no gap is large enough takes the place where the blocks in the
// way are cheapest, and these are taken out instead. Small and short blocks are cheap. A block
// becomes more expensive each time that no gap is large enough for it, so blocks that are hard to
// place keep their places in the end. Of the blocks outside of the plan, those alive at the highest
// load are put back first, because they have the least choice. When no block is left, the goal is
// lowered. When the number of blocks outside has not fallen for long, the search goes back to the
// best plan and tries again, with the costs that it has learned: where few blocks are in the way,
// most tries succeed soon or not at all. After longer and longer tries, the goal is raised. The
// plan and the costs are kept from goal to goal: most blocks are already where they fit.
//
// The search can also begin without any block and with a goal close to the lower bound. The blocks
// alive at the highest load are then placed where there is most choice, and the others where the
// load leaves more to be wasted. Each success is followed by another rebuild with a lower goal.
// When the goal had to be raised to almost the height of the best plan, that plan is lowered as
// above, and when this ends, rebuilt again. Levels of the load are finer here, and a block goes
// into the smallest gap that is large enough.
//
// After the ejection pool of Nagata and Braysy, "A powerful route minimization heuristic for the
// vehicle routing problem with time windows" (2009).
class Ejection {
 public:
  enum class Start { kPlan, kEmpty };  // kEmpty: without any block

  // The lifetimes must outlive this object.
  Ejection(std::span<Lifetime const> lifetimes, Size alignment, Start start)
      : lifetimes_(lifetimes),
        alignment_(alignment),
        tight_(start == Start::kEmpty),
        overlaps_(lifetimes),
        rebuilds_(start == Start::kEmpty),
        parts_(kFirstParts) {
    std::uint32_t horizon = 0;  // the end of blocks that are never freed
    std::vector<std::uint32_t> begins, ends;
    for (auto const& [size, first, last] : lifetimes) {
      horizon = std::max(horizon, last == kForever ? first + 1 : last);
      begins.push_back(first);
      ends.push_back(last);
    }
    std::ranges::sort(begins);
    std::ranges::sort(ends);
    auto const crowd =
        std::max(lifetimes.size() / kCrowd, std::min(lifetimes.size() / kSmallCrowd, kLargeCrowd));
    auto const peaks = peak_loads(lifetimes);
    Size const highest = peaks.empty() ? 1 : *std::ranges::max_element(peaks);
    Size const bytes_of_level = highest / (rebuilds_ ? kLevelsOfRebuild : kLevels) + 1;
    for (auto const& [size, first, last] : lifetimes) {
      auto const block = rounded_.size();
      rounded_.push_back(round_up(size, alignment));
      level_.push_back(static_cast<std::uint32_t>(peaks[block] / bytes_of_level));
      first_cost_.push_back(
          std::sqrt(static_cast<double>(size) * (std::min(last, horizon) - first)));
      auto const begun = std::ranges::lower_bound(begins, last) - begins.begin();
      auto const ended = std::ranges::upper_bound(ends, first) - ends.begin();
      crowded_.push_back(static_cast<std::size_t>(begun - ended) > crowd);
    }
    any_crowded_ = std::ranges::find(crowded_, true) != crowded_.end();
    cost_ = first_cost_;
  }

  // Continues the search of the last call, or begins with `plan` if it is lower than any before;
  // for kEmpty, much lower. Returns a lower plan than `plan`, if any is found before `stop`, which
  // is called before each move, returns true. Ends when the plan is not higher than `enough`, a
  // lower bound of the whole plan. The result depends only on the arguments of the calls so far.
  std::optional<Plan> lower(Plan const& plan, Size enough, std::uint64_t moves, Stop const& stop) {
    if (takes_over(plan.height, enough)) {
      if (rebuilds_ && !waiting_.empty() && gains(plan.height, enough))
        best_ = plan;
      else
        restart(plan);
    }
    if (waiting_.empty())
      aim(enough);
    else
      goal_ = std::max(goal_, enough);
    for (; moves > 0 && !stop(); --moves) {
      if (waiting_.size() < fewest_waiting_) {
        fewest_waiting_ = waiting_.size();
        idle_ = 0;
      } else if (++idle_ > most_idle()) {
        rebuilds_ ? raise_goal_of_rebuild(enough) : raise_goal(enough);
      } else if (idle_ > idle_moves_of_try_ && idle_moves_of_try_ <= most_idle() / kLastTry) {
        try_again();
      }
      move();
      if (!waiting_.empty()) continue;
      best_ = {offsets_, 0};
      for (Index block = 0; block < offsets_.size(); ++block)
        best_.height = std::max(best_.height, offsets_[block] + lifetimes_[block].size);
      if (best_.height <= enough) break;
      if (!rebuilds_) parts_ = std::max(kFewestParts, parts_ * 7 / 8);
      aim(enough);
    }
    if (best_.height < plan.height) return best_;
    return {};
  }

 private:
  static constexpr Size kLevels = 20, kLevelsOfRebuild = 1000;  // of the load
  // The goal is below the best plan by one part of what the plan is above the lower bound: by a
  // larger part after a success, and by a smaller one after a failure.
  static constexpr Size kFirstParts = 32, kFewestParts = 8, kMostParts = 64;
  static constexpr Size kFinest =
      20'000;  // goals closer to the best plan than this part are not tried
  static constexpr std::uint64_t kIdleMoves = 1000;  // before the goal is raised
  static constexpr std::uint64_t kIdleMovesPerBlock = 10;
  // Moves without success before the search goes back to the best plan: these in the first try, and
  // twice as many in each later one. The last try ends when the goal is raised.
  static constexpr std::uint64_t kIdleMovesOfFirstTry = 8000;
  static constexpr std::uint64_t kIdleMovesPerWaiting = 40;
  static constexpr std::size_t kMostWaitingOfTries =
      256;                                      // where more blocks are in the way, one try
  static constexpr std::uint64_t kLastTry = 4;  // has at least this part of the moves before that
  // The goal of a rebuild is above the lower bound by one part of what the best plan is. After so
  // many moves without success, this distance grows by half, until less than one part remains to
  // gain.
  static constexpr Size kRebuildParts = 4, kLeastGain = 8;
  static constexpr std::uint64_t kIdleMovesOfRebuild = 2000;
  static constexpr std::uint64_t kBlocksPerIdleMove = 2;
  // A crowded block is alive together with more than 1/64 of all, and with more than 1/8 or 512.
  static constexpr std::size_t kCrowd = 64, kSmallCrowd = 8, kLargeCrowd = 512;

  using Index = std::uint32_t;

  struct Waiting {                                 // a block outside of the plan
    std::pair<std::uint32_t, std::uint64_t> rank;  // level of the load, and a random number
    Index block;
  };
  struct Neighbor {  // a placed block that is alive together with the block to place
    Size offset, end;
    double cost;
    Index block;
  };

  std::uint64_t most_idle() const {
    return rebuilds_ ? kIdleMovesOfRebuild + lifetimes_.size() / kBlocksPerIdleMove
                     : kIdleMoves + kIdleMovesPerBlock * lifetimes_.size();
  }

  // A search that began without any block has a plan that is easier to lower than one that others
  // have made, so that is taken over only if it is much lower.
  bool takes_over(Size height, Size enough) const {
    Size const excess = best_.height - std::min(enough, best_.height);
    return height < best_.height && (!tight_ || height - std::min(enough, height) < excess / 2);
  }

  void restart(Plan const& plan) {
    best_ = plan;
    offsets_.resize(lifetimes_.size());
    placed_.assign(lifetimes_.size(), false);
    waiting_.clear();
    by_offset_.clear();
    by_end_.clear();
    for (Index block = 0; block < lifetimes_.size(); ++block) put(block, plan.offsets[block]);
  }

  void aim(Size enough) { rebuilds_ ? aim_to_rebuild(enough) : aim_below_best(enough); }

  void aim_to_rebuild(Size enough) {
    goal_ = enough + (best_.height - std::min(enough, best_.height)) / kRebuildParts;
    waiting_.clear();
    by_offset_.clear();
    by_end_.clear();
    for (Index block = 0; block < lifetimes_.size(); ++block) {
      placed_[block] = false;
      waiting_.push_back({{level_[block], random_()}, block});
    }
    std::ranges::make_heap(waiting_, {}, &Waiting::rank);
    fewest_waiting_ = waiting_.size();
    idle_ = 0;
    idle_moves_of_try_ = std::numeric_limits<std::uint64_t>::max();
  }

  void raise_goal_of_rebuild(Size enough) {
    goal_ += std::max(alignment_, (goal_ - enough) / 2);
    fewest_waiting_ = waiting_.size();
    idle_ = 0;
    if (gains(best_.height, enough)) return;
    rebuilds_ = false;
    cost_ = first_cost_;
    restart(best_);
    aim_below_best(enough);
  }

  // Whether the goal is much lower than a plan of this height.
  bool gains(Size height, Size enough) const {
    return goal_ < height && height - goal_ > (height - std::min(enough, height)) / kLeastGain;
  }

  void aim_below_best(Size enough) {
    Size const excess = best_.height - std::min(enough, best_.height - 1);
    goal_ = best_.height - std::min(excess, std::max(excess / parts_, alignment_));
    for (Index block = 0; block < lifetimes_.size(); ++block)
      if (placed_[block] && offsets_[block] + lifetimes_[block].size > goal_) take(block);
    fewest_waiting_ = waiting_.size();
    idle_ = 0;
    idle_moves_of_try_ = waiting_.size() > kMostWaitingOfTries
                             ? std::numeric_limits<std::uint64_t>::max()
                             : kIdleMovesOfFirstTry + kIdleMovesPerWaiting * waiting_.size();
  }

  void raise_goal(Size enough) {
    goal_ += (best_.height - goal_) / 2;
    fewest_waiting_ = waiting_.size();
    idle_ = 0;
    if (best_.height - goal_ > best_.height / kFinest) return;
    cost_ = first_cost_;
    parts_ = std::min(kMostParts, parts_ * 2);
    rebuilds_ = tight_;
    aim(enough);
  }

  // Goes back to the best plan, with the same goal and with the costs of now.
  void try_again() {
    waiting_.clear();
    for (Index block = 0; block < lifetimes_.size(); ++block) {
      if (placed_[block] && offsets_[block] == best_.offsets[block]) continue;
      if (placed_[block]) remove(block);
      put(block, best_.offsets[block]);
    }
    for (Index block = 0; block < lifetimes_.size(); ++block)
      if (offsets_[block] + lifetimes_[block].size > goal_) take(block);
    fewest_waiting_ = waiting_.size();
    idle_ = 0;
    idle_moves_of_try_ *= 2;
  }

  // Puts one block back into the plan.
  void move() {
    std::ranges::pop_heap(waiting_, {}, &Waiting::rank);
    Index const block = waiting_.back().block;
    waiting_.pop_back();
    Size const size = rounded_[block];
    Size const highest = round_down(goal_ - lifetimes_[block].size, alignment_);
    find_neighbors(block);
    auto offset = find_gap(size, highest);
    if (!offset) {
      cost_[block] += first_cost_[block];
      find_costs_by_end(block);
      offset = cheapest_place(size, highest);
      for (Neighbor const& other : neighbors_)
        if (other.offset < *offset + size && other.end > *offset) take(other.block);
    }
    put(block, *offset);
  }

  void put(Index block, Size offset) {
    auto const& [size, first, last] = lifetimes_[block];
    offsets_[block] = offset;
    placed_[block] = true;
    if (!any_crowded_) return;
    by_offset_.insert(offset, first, last, block);
    by_end_.insert(offset + rounded_[block], first, last, block);
  }

  void take(Index block) {
    remove(block);
    waiting_.push_back({{level_[block], random_()}, block});
    std::ranges::push_heap(waiting_, {}, &Waiting::rank);
  }

  void remove(Index block) {
    placed_[block] = false;
    if (!any_crowded_) return;
    by_offset_.erase(offsets_[block], block);
    by_end_.erase(offsets_[block] + rounded_[block], block);
  }

  void find_neighbors(Index block) {
    found_.clear();
    auto const [size, first, last] = lifetimes_[block];
    if (crowded_[block]) {
      by_offset_.visit_if(
          [&](auto begin, auto end) { return (begin < last) & (first < end); },
          [&](Size offset, Size other, auto, auto) { found_.emplace_back(offset, other); });
    } else {
      overlaps_.visit(block, [&](Index other) {
        if (placed_[other]) found_.emplace_back(offsets_[other], other);
      });
      std::ranges::sort(found_);
    }
    neighbors_.clear();
    for (auto const& [offset, other] : found_)
      neighbors_.push_back({offset, offset + rounded_[other], cost_[other], other});
  }

  void find_costs_by_end(Index block) {
    costs_by_end_.clear();
    auto const [size, first, last] = lifetimes_[block];
    if (crowded_[block]) {
      by_end_.visit_if(
          [&](auto begin, auto end) { return (begin < last) & (first < end); },
          [&](Size end, Size other, auto, auto) { costs_by_end_.emplace_back(end, cost_[other]); });
    } else {
      for (Neighbor const& other : neighbors_) costs_by_end_.emplace_back(other.end, other.cost);
      std::ranges::sort(costs_by_end_);
    }
  }

  // The lowest gap or, if `tight_`, the smallest one.
  std::optional<Size> find_gap(Size size, Size highest) const {
    std::optional<Size> found;
    Size least = std::numeric_limits<Size>::max();
    Size start = 0;  // end of the blocks visited so far
    for (Neighbor const& other : neighbors_) {
      if (start + size <= other.offset && other.offset - start < least) {
        found = start;
        least = other.offset - start;
        if (!tight_) return found;
      }
      start = std::max(start, other.end);
    }
    if (start <= highest && highest + size - start < least) found = start;
    return found;
  }

  // The offset at which the blocks in the way cost least. It is enough to try the ends of
  // neighbors, and offsets where the block would end at the begin of a neighbor or at the goal.
  Size cheapest_place(Size size, Size highest) {
    Size best = 0;
    double least = std::numeric_limits<double>::infinity();
    std::uint64_t ties = 0;
    // The offsets to try must not decrease from one call to the next.
    auto const tries = [&, begun = 0.0, ended = 0.0, i = std::size_t{0},
                        j = std::size_t{0}](Size offset) mutable {
      for (; i < neighbors_.size() && neighbors_[i].offset < offset + size; ++i)
        begun += neighbors_[i].cost;
      for (; j < costs_by_end_.size() && costs_by_end_[j].first <= offset; ++j)
        ended += costs_by_end_[j].second;
      double const cost = begun - ended;
      if (cost < least * (1 - 1e-9)) {
        least = cost;
        best = offset;
        ties = 1;
      } else if (cost <= least * (1 + 1e-9) && random_() % ++ties == 0) {
        best = offset;
      }
    };
    auto from_ends = tries;
    from_ends(0);
    for (auto const& [end, cost] : costs_by_end_)
      if (end <= highest) from_ends(end);
    auto from_begins = tries;
    for (Neighbor const& other : neighbors_)
      if (other.offset >= size && other.offset - size <= highest) from_begins(other.offset - size);
    from_begins(highest);
    return best;
  }

  std::span<Lifetime const> lifetimes_;
  Size alignment_;
  bool tight_;  // whether a block goes into the smallest gap instead of the lowest one
  Overlaps overlaps_;
  std::vector<Size> rounded_;         // sizes
  std::vector<std::uint32_t> level_;  // of the load
  std::vector<char> crowded_;         // whether each block is alive together with many others
  bool any_crowded_ = false;
  std::vector<double> first_cost_, cost_;  // of taking each block out

  Plan best_{{}, std::numeric_limits<Size>::max()};
  Size goal_ = 0;
  bool rebuilds_;           // whether each goal begins without any block
  Size parts_;              // the inverse of the next step of the goal
  std::uint64_t idle_ = 0;  // moves since the number of blocks outside was lowest
  std::size_t fewest_waiting_ = 0;
  std::uint64_t idle_moves_of_try_ = 0;  // before the search goes back to the best plan

  std::vector<Size> offsets_;
  std::vector<char> placed_;        // whether each block has an offset
  std::vector<Waiting> waiting_;    // a heap of the blocks without an offset
  OffsetOrder by_offset_, by_end_;  // the placed blocks, if any block is crowded
  std::vector<std::pair<Size, Index>> found_;
  std::vector<Neighbor> neighbors_;  // in the order of their offsets
  std::vector<std::pair<Size, double>> costs_by_end_;
  std::mt19937_64 random_;
};

}  // namespace allocbench

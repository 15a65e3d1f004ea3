// planners/ejection.hpp: lowers a plan by moving the blocks that are in the way.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "planners/placed_blocks.hpp"
#include "planners/plan.hpp"

namespace allocbench {

// The lifetimes must outlive this object.
class Overlaps {
 public:
  explicit Overlaps(std::span<Lifetime const> lifetimes)
      : lifetimes_(lifetimes), order_(lifetimes.size()) {
    std::iota(order_.begin(), order_.end(), 0u);
    std::ranges::stable_sort(order_, {}, [&](auto block) { return lifetimes[block].first; });
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
  Ejection(std::span<Lifetime const> lifetimes, Size alignment, Start start);

  // Continues the search of the last call, or begins with `plan` if it is lower than any before;
  // for kEmpty, much lower. Returns a lower plan than `plan`, if any is found before `stop`, which
  // is called before each move, returns true. Ends when the plan is not higher than `enough`, a
  // lower bound of the whole plan. The result depends only on the arguments of the calls so far.
  std::optional<Plan> lower(Plan const& plan, Size enough, std::uint64_t moves, Stop const& stop);

 private:
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

  std::uint64_t most_idle() const;
  bool takes_over(Size height, Size enough) const;
  void restart(Plan const& plan);
  void aim(Size enough);
  void aim_to_rebuild(Size enough);
  void raise_goal_of_rebuild(Size enough);
  bool gains(Size height, Size enough) const;
  void aim_below_best(Size enough);
  void raise_goal(Size enough);
  void try_again();
  void move();
  void put(Index block, Size offset);
  void take(Index block);
  void remove(Index block);
  void find_neighbors(Index block);
  void find_costs_by_end(Index block);
  std::optional<Size> find_gap(Size size, Size highest) const;
  Size cheapest_place(Size size, Size highest);

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

// planners/piece_search.hpp: searches for the lowest plan of one piece.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planners/beam.hpp"
#include "planners/ejection.hpp"
#include "planners/lowest_first.hpp"
#include "planners/plan.hpp"
#include "planners/skyline.hpp"

namespace allocbench {

// The lowest of the plans by execution order, from the peak, by size and by best fit, which are
// made in this order until one is at most `enough` bytes high. Once `stop` returns true, planners
// that have not finished are left out. If none has, the one by execution order stops to reuse
// memory.
Plan plan_fast(std::span<Lifetime const> lifetimes, Size alignment, Size enough, Stop const& stop);

// The best plan of a piece so far, and the searches that lower it. Heights include the base of the
// piece.
class PieceSearch {
 public:
  // The piece has these blocks, at any offset from `base` up. `all`: all lifetimes. `plan`: if not
  // null, a plan of all of them, which are all in this piece; otherwise the piece starts with the
  // plan of the fast planners.
  PieceSearch(std::vector<std::uint32_t> blocks, Size base, std::span<Lifetime const> all,
              Size alignment, Plan const* plan, Stop const& stop);

  Size height() const { return base_ + height_; }
  // No plan of the blocks above the base is lower.
  Size lower_bound() const { return base_ + lower_bound_; }

  void write_to(std::vector<Size>& offsets) const;

  // One round of searches for a lower plan, but not below `enough`, a lower bound of the whole
  // plan. The effort doubles from round to round. In small pieces, every other round tries
  // goals between the lowest and the best plan with LowestFirst only, until one fails. Larger
  // pieces are searched after repair, for a plan of the lowest goal, and after the first round only
  // where repair has found no lower plan.
  void improve(Size enough, Stop const& stop);

 private:
  struct Searches;

  void reorder(int round, Size enough, Stop const& stop);
  void search(int round, Size enough, Stop const& stop);
  bool repair(int round, Size enough, Stop const& stop);
  bool move(Ejection::Start start, double moves, Size enough, Stop const& stop);
  bool is_small() const;
  double share_of_effort() const;
  Answer attempt(Searches& searches, Size goal, int round, Stop const& stop);
  Answer attempt_lowest_first(LowestFirst& search, Size goal, int round, Stop const& stop);
  bool attempt_beams(Beam& beam, Size goal, double effort, Stop const& stop);
  void keep(std::vector<Size> offsets);
  Size height_of(std::vector<Size> const& offsets) const;
  Size height_after(Size height) const;

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

}  // namespace allocbench

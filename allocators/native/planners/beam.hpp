// planners/beam.hpp: searches for a plan of a given height among the most promising partial plans.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "planners/boxes.hpp"
#include "planners/plan.hpp"

namespace allocbench {

// Builds plans from the bottom up, as Skyline does (see there for floor, offset, slack and the
// branches), but keeps up to `width` partial plans side by side and never goes back. In each step,
// every partial plan is extended by each box that can stand on one of its lowest floors, or that
// floor is left empty. Of all extensions, those with the least waste for what they have placed are
// kept. It finds plans where a depth-first search must undo a choice made much earlier; it
// cannot prove that there is no plan. After the iterative beam search of Libralesso and Fontan, "An
// anytime tree search algorithm for the 2018 ROADEF/EURO challenge glass cutting problem" (2021).
class Beam {
 public:
  Beam(std::span<Lifetime const> lifetimes, Size alignment);

  // Searches for a plan of at most `height` bytes. The waste of a partial plan is divided by the
  // power `exponent` of the area (bytes times sections) that it has placed. `stop` is called for
  // each partial plan; returning true ends the search. The result depends only on the arguments.
  bool fit(Size height, double exponent, std::size_t width, Stop const& stop);

  // The share of `height` that the boxes leave free, on average over the sections. A beam needs
  // some: where nothing can be wasted, all partial plans are equally good.
  double free_share(Size height) const;

  // One per lifetime, valid after fit() has returned true.
  std::vector<Size> const& offsets() const { return offsets_; }

 private:
  using Index = std::uint32_t;
  static constexpr Index kNone = ~Index{0};

  using Box = ScaledBox;
  struct Partial {  // a partial plan
    std::vector<Units> floors, loads;
    std::vector<Units> offsets;  // of each box: placed, or the lowest possible
    std::vector<Index> unplaced;
    double area = 0;  // of the placed boxes
  };
  struct Extension {
    Index parent;  // in level_
    Index box;
    Units floor;  // on which the box stands
    double badness;
    std::uint64_t state;  // a hash that is equal if the same boxes are left on the same floors
  };

  bool start(Size height);
  bool expand(Index parent);
  bool extend(Partial& partial, Extension const& extension) const;
  bool lift(Partial& partial, Index lo, Index hi, Units floor) const;
  Index choose_section(Partial const& partial);
  double badness(Partial const& partial) const;
  std::uint64_t state(Partial const& partial) const;
  void keep_best(std::size_t width);

  Size alignment_;
  Sections sections_;
  std::vector<Box> boxes_;
  std::vector<Units> full_loads_;
  Size unit_ = 1;
  Units height_ = 0;  // the highest end of a box, rounded up
  double exponent_ = 1;

  std::vector<Partial> level_, next_level_;      // plans with equal numbers of placed boxes
  std::size_t used_ = 0;                         // number of partial plans in level_
  std::vector<std::pair<double, Index>> queue_;  // a heap of badness and index in level_
  Partial scratch_;
  std::vector<Extension> extensions_;
  std::vector<Index> boxes_on_floor_;  // of each section
  std::vector<Index> candidates_;
  std::vector<Size> offsets_;
};

}  // namespace allocbench

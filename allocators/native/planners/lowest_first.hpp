// planners/lowest_first.hpp: searches for a plan of a given height, always at the lowest offset.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "planners/boxes.hpp"
#include "planners/plan.hpp"

namespace allocbench {

// The depth-first search of Moffitt, "MiniMalloc: A Lightweight Memory Allocator for
// Hardware-Accelerated Machine Learning" (ASPLOS 2023), in the same order. See Skyline for section,
// box, floor, load and part.
//
// - Blocks are placed in the order of their offsets, those of equal offset in the order of a rule.
//   The next block is placed at its lowest possible offset. An offset is not tried if another
//   unplaced block fits below it.
// - The floor of a section is the lowest offset of its unplaced boxes. A branch ends when the floor
//   of a section, or the offset of the last box, plus the load of the section exceeds the height.
// - If no unplaced box is alive together with a box, this box goes to its lowest offset without an
//   alternative.
// - When parts become disconnected, they are searched one by one, with the loads that are left.
//
// A box that was not placed at its lowest offset is passed over: it must stand on a box that is
// still unplaced. What follows depends only on the unplaced boxes, their offsets, and which of them
// are passed over. Such states are remembered when they have no plan. So fewer nodes are visited
// than without, but in the same order, and a plan is found within the same number of nodes or
// fewer.
class LowestFirst {
 public:
  // What comes first among boxes of equal offset: the highest load, lifetime, or bytes times time.
  enum class Rule { kTimeAreaLoad, kLoadAreaTime, kLoadTimeArea };

  // `names`: one per lifetime; of equal boxes, the one with the lower name is placed first.
  LowestFirst(std::span<Lifetime const> lifetimes, std::span<std::uint32_t const> names,
              Size alignment);

  // Searches for a plan of at most `height` bytes. Visits at most `nodes` nodes, and ends early if
  // `stop`, which is called periodically, returns true.
  Answer fit(Size height, Rule rule, std::uint64_t nodes, Stop const& stop);

  // One per lifetime, valid after kFound.
  std::vector<Size> offsets() const;

 private:
  using Index = std::uint32_t;
  using Box = ScaledBox;

  struct Part {
    Index lo, hi;        // sections, half-open
    Units least_offset;  // of the next box
    Index least_place;   // in the list of unplaced boxes, of a box at this offset
  };
  struct Choice {
    Units offset;
    Index place;
  };
  struct Level {                  // of the recursion
    std::vector<Index> unplaced;  // boxes of the part, in the order of the rule
    std::vector<Choice> choices;
  };
  struct OldOffset {
    Index box;
    Units offset;
  };

  bool search(Part const& part, std::size_t depth);
  bool search_without(Part const& part, Choice choice, std::size_t depth);
  bool search_part(Index lo, Index hi, std::vector<Index> const& unplaced, std::size_t depth);
  std::uint64_t find_choices(Part const& part, Level& level) const;
  bool was_tried(Level const& level, std::size_t choice) const;
  bool place(Part const& part, std::vector<Index> const& unplaced, Index box);
  bool fits_above_floors(Index lo, Index hi, std::vector<Index> const& unplaced);
  void undo(std::size_t boxes, std::size_t offsets);
  void sort(std::vector<Index>& boxes);

  Size alignment_;
  Sections sections_;
  std::vector<std::uint32_t> names_;  // of boxes

  std::vector<Box> boxes_;
  Size unit_ = 1;
  Units height_ = 0;
  Rule rule_{};
  std::vector<Units> offsets_;  // of each box: placed, or the lowest possible
  std::vector<char> placed_;
  std::vector<Index> placed_order_;
  std::vector<Units> loads_;      // of each section
  std::vector<Units> floors_;     // of the sections that were checked last
  std::vector<Index> crossings_;  // of each section: unplaced boxes that span the next one, too
  std::vector<OldOffset> old_offsets_;
  std::vector<Level> levels_;
  bool covered_ = false;  // whether an unplaced box is alive together with the last placed one

  SearchLimit limit_;
  FailedStates failed_states_;
};

}  // namespace allocbench

// planners/skyline.hpp: searches for a plan of a given height, or proves that there is none.
// SPDX-License-Identifier: Apache-2.0
//
// section    a maximal set of blocks that are alive together; sections are in the order of time
// box        a block: it spans the sections [lo, hi) and occupies `rounded` bytes of their height
// floor      of a section: the end of the boxes placed in it; everything below is settled
// offset     of an unplaced box: the lowest possible one, which is the highest floor that it spans
// level box  an unplaced box whose floors are all at its offset
// top        of a section: the end of the highest placed box, at or below the floor
// load       of a section: the rounded bytes of its unplaced boxes
// slack      of a section: the bytes that can be wasted in it without exceeding the height
// part       sections connected by unplaced boxes
// state      the floors and the unplaced boxes of a part
//
// A plan is built from the bottom up:
//
// - The search chooses a section and branches on the box that stands directly on its floor: each
//   one that can, or none. Without a box, the floor rises to the next offset that a box could have,
//   and the bytes in between are wasted. Only sections where all boxes on the floor are level are
//   chosen: there the branches are exhaustive for every order of the sections.
// - Floors are monotone: the floor of a section rises to the lowest offset of its unplaced boxes. A
//   branch ends when the floor of a section plus its load exceeds the height. A section without
//   slack has no branch for waste.
// - A branch also ends when an unplaced box fits between the tops and the floors of its sections:
//   the plan would remain valid if this box were moved there, and the search finds that plan, too.
// - Parts are searched one by one.
// - The rest of a search depends only on the state and the tops. States that are known to have no
//   plan are remembered (by 64-bit hashes), and only one of several equal boxes is tried.
//
// Sections, monotone floors, decomposition, the rejection of plans with room for an unplaced box
// and the choice of the lowest box come from Moffitt, "MiniMalloc: A Lightweight Memory Allocator
// for Hardware-Accelerated Machine Learning" (ASPLOS 2023). Branching follows skyline heuristics
// for strip packing. The cost of a node is the number of sections spanned by all unplaced boxes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "planners/boxes.hpp"
#include "planners/plan.hpp"

namespace allocbench {

class Skyline {
 public:
  // How to choose the section to branch on and the boxes to try first.
  struct Rule {
    // kFirstBox: below the box to try first among those with the lowest offset.
    enum class Sections { kFewestBranches, kLowest, kFirstBox } sections;
    // kLoadLongest: as kHighestLoad, but the longest of equal ones first.
    enum class Blocks { kLongest, kLargest, kMostBytesTime, kHighestLoad, kLoadLongest } blocks;
    std::uint64_t seed = 0;  // if not 0, perturbs the order of boxes
  };

  Skyline(std::span<Lifetime const> lifetimes, Size alignment);

  // Searches for a plan of at most `height` bytes. Visits at most `nodes` nodes, and ends early if
  // `stop`, which is called periodically, returns true. kNone proves that there is no plan.
  Answer fit(Size height, Rule rule, std::uint64_t nodes, Stop const& stop);

  // One per lifetime, valid after kFound.
  std::vector<Size> offsets() const;

 private:
  using Index = std::uint32_t;
  static constexpr Index kNone = ~Index{0};
  static constexpr Size kNoFloor = ~Size{0};

  using Box = Sections::Box;
  struct Range {  // of sections, half-open
    Index lo = kNone, hi = 0;

    bool operator==(Range const&) const = default;
    void include(Range const& other) {
      lo = std::min(lo, other.lo);
      hi = std::max(hi, other.hi);
    }
    auto common(Index from, Index to) const {
      return std::views::iota(std::max(lo, from), std::max(std::max(lo, from), std::min(hi, to)));
    }
  };
  // Sections connected by unplaced boxes; `head` is the first of these boxes in the list.
  struct Part {
    Range range;
    Index head;
    std::size_t boxes;
    Range changed;  // where floors may have changed since lift_floors
  };
  struct Surface {  // of a section, before a change
    Index section;
    Size floor, top;
  };
  struct Branching {
    Index section;
    Size next_floor;  // of the branch without a box on the floor; kNoFloor: no such branch
  };

  void rank(Rule rule);
  void reset();

  bool search_parts(Part& whole);
  bool search(Part& part);
  bool lift_floors(Part& part);
  bool raise_offsets(Range& touched);
  bool raise_floors(Range const& touched);
  void find_level_boxes(Range& touched);
  void count_boxes_on_floors(Range const& touched);
  bool leaves_room() const;
  void find_near(Part const& part, Range const& range);
  std::uint64_t hash(Part const& part) const;
  Branching branch(Part const& part, std::vector<Index>& boxes);
  std::optional<Index> spanning(Part const& part) const;
  Range candidates(Part const& part) const;
  Index choose_section(Part const& part) const;
  Size floor_without(Part const& part, Index section) const;

  void set_floor(Index section, Size floor);
  void place(Index box, Size offset);
  Range undo(std::size_t surfaces, std::size_t boxes);

  template <class Visit>
  void for_each_box(Part const& part, Visit visit) const {
    for (Index index = part.head; index != end() && boxes_[index].lo < part.range.hi;
         index = next_[index])
      visit(index);
  }
  std::span<Size const> floors(Box const& box) const {
    return std::span(floor_by_section_).subspan(box.lo, box.hi - box.lo);
  }
  Index end() const { return static_cast<Index>(boxes_.size()); }
  Size slack(Index section) const {
    return height_ + max_rounding_by_section_[section] - floor_by_section_[section] -
           load_by_section_[section];
  }

  std::vector<Box> boxes_;  // in order of `lo`
  std::vector<Size> load_by_section_;
  std::vector<Size> full_load_by_section_;  // the load before any box is placed

  Size height_ = 0;
  Rule rule_{};
  std::vector<Index> rank_by_box_;  // boxes of lower rank are tried first
  std::vector<Size> floor_by_section_, top_by_section_;
  std::vector<Index> next_, prev_;  // the list of unplaced boxes
  std::vector<Size> offset_by_box_;
  std::vector<Surface> old_surfaces_;  // to undo changes
  std::vector<Index> placed_;          // in the order of their placement

  std::vector<Index> nearby_boxes_;            // unplaced boxes near changed floors
  std::vector<Size> min_offset_by_section_;    // lowest offset of the unplaced boxes
  std::vector<Size> max_rounding_by_section_;  // most bytes that rounding adds to an unplaced box
  std::vector<std::uint32_t> on_floor_by_section_;  // number of boxes that can stand on the floor
  std::vector<char> uneven_by_section_;             // true if one of these boxes is not level
  std::vector<char> level_by_box_;                  // true for level boxes

  SearchLimit limit_;
  FailedStates failed_states_;
};

}  // namespace allocbench

// planners/skyline.hpp: is there a plan of this height? A search with proof.
// SPDX-License-Identifier: Apache-2.0
//
// Time is cut into sections: the largest sets of blocks that are alive together, in order. A block
// spans a range of sections; in each, the blocks placed so far end at a floor. A plan is built from
// the bottom up, so that all that is below a floor is settled:
//
// - The search takes one section and branches on what lies directly on its floor: each block that
//   can, or none, which lifts the floor to where the next block could lie and wastes the bytes
//   between. Only sections are taken for which every such block lies on a floor that is level: then
//   the branches are all there is, in whatever order sections are taken.
// - Floors are monotone: no block of a section can lie below the highest floor that it spans, so
// the
//   floor of a section rises to the least of these. A section whose floor and unplaced bytes exceed
//   the height ends the branch. A section with no bytes to waste has no branch for waste.
// - Sections that no unplaced block connects any more are searched one by one.
// - What is left of a search depends on floors and unplaced blocks alone: states known to have no
//   plan are remembered (by 64-bit hashes), and of equal blocks one is tried.
//
// Sections, monotone floors and decomposition are those of Moffitt, "MiniMalloc: A Lightweight
// Memory Allocator for Hardware-Accelerated Machine Learning" (ASPLOS 2023); the branching is that
// of skyline heuristics for strip packing. A node takes steps in the sum of sections spanned by the
// unplaced blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "planners/plan.hpp"

namespace allocbench {

class Skyline {
 public:
  enum class Answer { kFound, kNone, kUnknown };

  // How to choose: the section to branch on, and the blocks to try first.
  struct Rule {
    enum class Sections { kFewestBranches, kLowest } sections;
    enum class Blocks { kLongest, kLargest, kMostBytesTime, kHighestLoad } blocks;
    std::uint64_t seed = 0;  // other than 0: the order of blocks is disturbed
  };

  Skyline(std::span<Lifetime const> lifetimes, Size alignment);

  // Searches at most `nodes` nodes, or until `stop` (asked now and then) says so. kNone is proof.
  Answer fit(Size height, Rule rule, std::uint64_t nodes, std::function<bool()> const& stop);

  // One for each lifetime, after kFound.
  std::vector<Size> offsets() const;

 private:
  using Index = std::uint32_t;
  static constexpr Index kNone = ~Index{0};
  static constexpr Size kNoFloor = ~Size{0};

  struct Box {
    Index lo, hi;         // sections, half-open
    Size size, rounded;   // bytes
    std::uint32_t alive;  // instants
    Index block;          // index of the lifetime
    std::uint64_t kind;   // equal for boxes that can stand for one another
  };
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
  // Sections connected by unplaced boxes; `head` is the first of these in the list.
  struct Part {
    Range range;
    Index head;
    std::size_t boxes;
    Range changed;  // where floors may have changed since they were last lifted
  };
  struct Branching {
    Index section;
    Size next_floor;  // when no box lies on the floor; kNoFloor: there is no such branch
  };

  void make_sections(std::span<Lifetime const> lifetimes, Size alignment);
  void rank(Rule rule);
  void reset();

  bool search_parts(Part& whole);
  bool search(Part& part);
  bool out_of_budget(Part const& part);
  bool lift_floors(Part& part);
  void find_near(Part const& part, Range const& range);
  std::uint64_t hash(Part const& part) const;
  Branching branch(Part const& part, std::vector<Index>& boxes);
  std::optional<Index> spanning(Part const& part) const;
  Index choose_section(Part const& part) const;
  Size floor_without(Part const& part, Index section) const;

  void set_floor(Index section, Size floor);
  void place(Index box, Size offset);
  Range undo(std::size_t floors, std::size_t boxes);

  template <class Visit>
  void each(Part const& part, Visit visit) const {
    for (Index at = part.head; at != end() && boxes_[at].lo < part.range.hi; at = next_[at])
      visit(at);
  }
  std::span<Size const> floors(Box const& box) const {
    return std::span(floor_).subspan(box.lo, box.hi - box.lo);
  }
  Index end() const { return static_cast<Index>(boxes_.size()); }
  Size slack(Index section) const {
    return height_ + rounding_[section] - floor_[section] - load_[section];
  }

  std::vector<Box> boxes_;       // in order of `lo`
  std::vector<Size> load_;       // of each section: rounded bytes of unplaced boxes
  std::vector<Size> full_load_;  // the same, of all boxes

  Size height_ = 0;
  Rule rule_{};
  std::vector<Index> rank_;         // of each box: the lower, the earlier it is tried
  std::vector<Size> floor_;         // of each section
  std::vector<Index> next_, prev_;  // the list of unplaced boxes
  std::vector<Size> offset_;        // of each box; of an unplaced one, the least possible
  std::vector<std::pair<Index, Size>> old_floors_;
  std::vector<Index> placed_;

  std::vector<Index> near_;     // unplaced boxes close to where floors have changed
  std::vector<Size> least_;     // of each section: the least offset of an unplaced box
  std::vector<Size> rounding_;  // of each section: the most that rounding adds to one of them
  std::vector<std::uint32_t> on_floor_;  // of each section: boxes that can lie on its floor
  std::vector<char> uneven_;             // ... some of which span a lower floor as well
  std::vector<char> level_;              // of each box: every floor that it spans is its offset

  std::uint64_t nodes_left_ = 0, steps_ = 0;
  bool stopped_ = false;
  std::function<bool()> const* stop_ = nullptr;
  std::vector<std::uint64_t> hopeless_;  // hashes of states with no plan of this height
};

}  // namespace allocbench

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
#include <numeric>
#include <optional>
#include <random>
#include <ranges>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "planners/boxes.hpp"
#include "planners/planners.hpp"

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

  Skyline(std::span<Lifetime const> lifetimes, Size alignment) : limit_(kStepsBetweenStops) {
    auto sections_with_boxes = sections_of(lifetimes, alignment);
    boxes_ = std::move(sections_with_boxes.boxes);
    full_load_by_section_ = std::move(sections_with_boxes.load);
    auto const n = boxes_.size(), sections = full_load_by_section_.size();
    rank_by_box_.resize(n);
    next_.resize(n + 1);
    prev_.resize(n + 1);
    offset_by_box_.resize(n);
    floor_by_section_.resize(sections);
    top_by_section_.resize(sections);
    min_offset_by_section_.resize(sections);
    max_rounding_by_section_.resize(sections);
    on_floor_by_section_.resize(sections);
    uneven_by_section_.resize(sections);
    level_by_box_.resize(n);
  }

  // Searches for a plan of at most `height` bytes. Visits at most `nodes` nodes, and ends early if
  // `stop`, which is called periodically, returns true. kNone proves that there is no plan.
  Answer fit(Size height, Rule rule, std::uint64_t nodes, Stop const& stop) {
    failed_states_.start(height, nodes);
    limit_.start(nodes, stop);
    height_ = height;
    rule_ = rule;
    rank(rule);
    reset();
    Range const all{0, static_cast<Index>(floor_by_section_.size())};
    Part whole{all, next_[end()], boxes_.size(), all};
    if (search_parts(whole)) return Answer::kFound;
    return limit_.reached() ? Answer::kUnknown : Answer::kNone;
  }

  // One per lifetime, valid after kFound.
  std::vector<Size> offsets() const {
    std::vector<Size> offsets(boxes_.size());
    for (Index index = 0; index < end(); ++index)
      offsets[boxes_[index].block] = offset_by_box_[index];
    return offsets;
  }

 private:
  static constexpr std::uint64_t kStepsBetweenStops = std::uint64_t{1} << 20;

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

  void rank(Rule rule) {
    std::mt19937_64 random(rule.seed);
    std::vector<std::pair<double, double>> keys;
    for (Box const& box : boxes_) {
      auto const size = static_cast<double>(box.rounded), alive = static_cast<double>(box.alive);
      auto const load = *std::max_element(&full_load_by_section_[box.lo],
                                          &full_load_by_section_[box.lo] + (box.hi - box.lo));
      std::pair key{alive, size};
      if (rule.blocks == Rule::Blocks::kLargest) key = {size, alive};
      if (rule.blocks == Rule::Blocks::kMostBytesTime) key = {size * alive, size};
      if (rule.blocks == Rule::Blocks::kHighestLoad)
        key = {static_cast<double>(load), size * alive};
      if (rule.blocks == Rule::Blocks::kLoadLongest) key = {static_cast<double>(load), alive};
      if (rule.seed != 0) key.first *= 1 + static_cast<double>(random() % 1024) / 2048;
      keys.push_back(key);
    }
    std::vector<Index> order(boxes_.size());
    std::iota(order.begin(), order.end(), Index{0});
    std::ranges::stable_sort(order, std::greater{}, [&](Index box) { return keys[box]; });
    for (Index index = 0; index < end(); ++index) rank_by_box_[order[index]] = index;
  }

  void reset() {
    std::ranges::fill(floor_by_section_, 0);
    std::ranges::fill(top_by_section_, 0);
    load_by_section_ = full_load_by_section_;
    old_surfaces_.clear();
    placed_.clear();
    for (Index index = 0; index <= end(); ++index) {
      next_[index] = index == end() ? 0 : index + 1;
      prev_[index] = index == 0 ? end() : index - 1;
    }
  }

  // Places the unplaced boxes of a part. Parts that have become disconnected are searched one by
  // one.
  bool search_parts(Part& whole) {
    std::vector<Part> parts;
    for_each_box(whole, [&](Index index) {
      Box const& box = boxes_[index];
      if (parts.empty() || box.lo >= parts.back().range.hi)
        parts.push_back({{box.lo, box.hi}, index, 0, whole.changed});
      parts.back().range.include({box.lo, box.hi});
      ++parts.back().boxes;
    });
    std::ranges::stable_sort(parts, {}, &Part::boxes);
    return std::ranges::all_of(parts, [&](Part& part) {
      bool const fits = search(part);
      whole.changed.include(part.changed);
      return fits;
    });
  }

  // Places the boxes of a part. On failure, the caller undoes the placements.
  bool search(Part& part) {
    std::uint64_t state = 0;  // hash of the initial state, all branches of which this loop tries
    std::vector<Index> choices;
    while (!limit_.count(part.boxes * (part.range.hi - part.range.lo)) && lift_floors(part)) {
      std::uint64_t const current = hash(part);
      if (failed_states_.contain(current)) break;
      if (state == 0) state = current;
      auto const [section, next_floor] = branch(part, choices);
      auto const surfaces = old_surfaces_.size(), boxes = placed_.size();
      Size const floor = floor_by_section_[section];
      for (Index const box : choices) {
        place(box, floor);
        Part rest = part;
        rest.changed.include({boxes_[box].lo, boxes_[box].hi});
        if (box == part.head) rest.head = next_[box];
        if (search_parts(rest)) return true;
        part.changed.include(rest.changed);
        part.changed.include(undo(surfaces, boxes));
        if (limit_.reached()) return false;
      }
      if (next_floor == kNoFloor) break;
      set_floor(section, next_floor);
      part.changed.include({section, section + 1});
    }
    if (state != 0 && !limit_.reached()) failed_states_.add(state);
    return false;
  }

  // Raises floors as far as possible and updates the boxes and sections where floors have changed.
  // Returns false if the remaining boxes do not fit.
  bool lift_floors(Part& part) {
    Range touched{std::max(part.changed.lo, part.range.lo),
                  std::min(part.changed.hi, part.range.hi)};
    part.changed = {};
    Range near = touched;  // the sections for which `nearby_boxes_` holds
    find_near(part, near);
    bool fits = raise_offsets(touched);
    if (fits && touched != near) find_near(part, near = touched);
    fits = fits && raise_floors(touched);
    if (!fits) {
      part.changed = touched;  // what the rest would have updated
      return false;
    }
    find_level_boxes(touched);
    if (touched != near) find_near(part, near = touched);
    count_boxes_on_floors(touched);
    return !leaves_room();
  }

  // Sets the offset of each nearby box to its highest floor, and adds the sections of boxes whose
  // offset has changed to `touched`. Returns false if a box exceeds the height.
  bool raise_offsets(Range& touched) {
    bool fits = true;
    for (Index const index : nearby_boxes_) {
      Box const& box = boxes_[index];
      Size offset = 0;
      for (Size const floor : floors(box)) offset = std::max(offset, floor);
      if (offset != offset_by_box_[index]) touched.include({box.lo, box.hi});
      offset_by_box_[index] = offset;
      fits = fits && offset + box.size <= height_;
    }
    return fits;
  }

  // Raises each floor to the lowest offset in its section. Returns false if the load of a section
  // exceeds the height above its floor.
  bool raise_floors(Range const& touched) {
    for (Index section = touched.lo; section < touched.hi; ++section)
      min_offset_by_section_[section] = kNoFloor, max_rounding_by_section_[section] = 0;
    for (Index const index : nearby_boxes_) {
      auto const sections = touched.common(boxes_[index].lo, boxes_[index].hi);
      for (Index const section : sections)
        min_offset_by_section_[section] =
            std::min(min_offset_by_section_[section], offset_by_box_[index]);
      Size const rounding = boxes_[index].rounded - boxes_[index].size;
      if (rounding == 0) continue;
      for (Index const section : sections)
        max_rounding_by_section_[section] = std::max(max_rounding_by_section_[section], rounding);
    }
    bool fits = true;
    for (Index section = touched.lo; section < touched.hi; ++section) {
      set_floor(section, min_offset_by_section_[section]);
      fits = fits && floor_by_section_[section] + load_by_section_[section] <=
                         height_ + max_rounding_by_section_[section];
    }
    return fits;
  }

  // Finds the level boxes, and adds the sections of boxes that have changed to `touched`.
  void find_level_boxes(Range& touched) {
    for (Index const index : nearby_boxes_) {
      Box const& box = boxes_[index];
      bool const level = std::ranges::all_of(
          floors(box), [&](Size floor) { return floor == offset_by_box_[index]; });
      if (level != level_by_box_[index]) touched.include({box.lo, box.hi});
      level_by_box_[index] = level;
    }
  }

  // Counts the boxes that can stand on each floor, and finds the floors where one is not level.
  void count_boxes_on_floors(Range const& touched) {
    for (Index section = touched.lo; section < touched.hi; ++section)
      on_floor_by_section_[section] = 0, uneven_by_section_[section] = false;
    for (Index const index : nearby_boxes_)
      for (Index const section : touched.common(boxes_[index].lo, boxes_[index].hi)) {
        if (floor_by_section_[section] != offset_by_box_[index]) continue;
        ++on_floor_by_section_[section];
        if (!level_by_box_[index]) uneven_by_section_[section] = true;
      }
  }

  // Whether a nearby box fits between the tops and the floors of its sections.
  bool leaves_room() const {
    return std::ranges::any_of(nearby_boxes_, [&](Index index) {
      Box const& box = boxes_[index];
      Size top = 0, floor = kNoFloor;
      for (Index section = box.lo; section < box.hi && top + box.rounded <= floor; ++section) {
        top = std::max(top, top_by_section_[section]);
        floor = std::min(floor, floor_by_section_[section]);
      }
      return top + box.rounded <= floor;
    });
  }

  // Finds the unplaced boxes that span any of these sections.
  void find_near(Part const& part, Range const& range) {
    nearby_boxes_.clear();
    for (Index index = part.head; index != end() && boxes_[index].lo < range.hi;
         index = next_[index])
      if (range.lo < boxes_[index].hi) nearby_boxes_.push_back(index);
  }

  std::uint64_t hash(Part const& part) const {
    std::uint64_t sum = 0;
    for_each_box(part, [&](Index index) { sum += boxes_[index].kind; });
    for (Index section = part.range.lo; section < part.range.hi; ++section)
      sum += mix(mix(mix(floor_by_section_[section]) + top_by_section_[section]) + section);
    return sum;
  }

  // Chooses the section to branch on, the boxes that can stand on its floor, and the next floor of
  // the branch without a box.
  Branching branch(Part const& part, std::vector<Index>& boxes) {
    boxes.clear();
    if (auto const box = spanning(part)) {
      boxes.push_back(*box);
      return {boxes_[*box].lo, kNoFloor};
    }
    Index const section = choose_section(part);
    for_each_box(part, [&](Index index) {
      Box const& box = boxes_[index];
      if (box.lo <= section && section < box.hi &&
          offset_by_box_[index] == floor_by_section_[section])
        boxes.push_back(index);
    });
    std::ranges::sort(boxes, [&](Index a, Index b) {
      return std::tie(boxes_[a].kind, rank_by_box_[a]) < std::tie(boxes_[b].kind, rank_by_box_[b]);
    });
    auto const same =
        std::ranges::unique(boxes, {}, [&](Index index) { return boxes_[index].kind; });
    boxes.erase(same.begin(), same.end());
    std::ranges::sort(boxes, {}, [&](Index index) { return rank_by_box_[index]; });

    Size const next = floor_without(part, section);
    bool const fits = next != kNoFloor && next - floor_by_section_[section] <= slack(section);
    return {section, fits ? next : kNoFloor};
  }

  // If all floors of a part are equal, a box that spans the part can be placed first: in any plan,
  // it can change places with the boxes below it. This does not hold for a box whose size is
  // rounded, because only the highest box of a section needs no rounding.
  std::optional<Index> spanning(Part const& part) const {
    auto const floors =
        std::span(floor_by_section_).subspan(part.range.lo, part.range.hi - part.range.lo);
    if (std::ranges::adjacent_find(floors, std::ranges::not_equal_to{}) != floors.end()) return {};
    std::optional<Index> spanning_box;
    for_each_box(part, [&](Index index) {
      Box const& box = boxes_[index];
      if (box.lo == part.range.lo && box.hi == part.range.hi && box.size == box.rounded)
        spanning_box = index;
    });
    return spanning_box;
  }

  // The sections of a part to choose from. At the lowest offset, all boxes are level.
  Range candidates(Part const& part) const {
    if (rule_.sections != Rule::Sections::kFirstBox) return part.range;
    Index first = part.head;
    auto const key = [&](Index box) { return std::pair(offset_by_box_[box], rank_by_box_[box]); };
    for_each_box(part, [&](Index index) {
      if (key(index) < key(first)) first = index;
    });
    return {boxes_[first].lo, boxes_[first].hi};
  }

  Index choose_section(Part const& part) const {
    Range const range = candidates(part);
    bool const lowest = rule_.sections == Rule::Sections::kLowest;
    std::tuple<Size, Size, Size> best{kNoFloor, kNoFloor, kNoFloor};
    Index best_section = range.lo;
    for (Index section = range.lo; section < range.hi; ++section) {
      if (uneven_by_section_[section]) continue;
      Size const branches = on_floor_by_section_[section] + (slack(section) > 0);
      std::tuple const key{lowest ? floor_by_section_[section] : 0, branches, slack(section)};
      if (key < best) best = key, best_section = section;
    }
    return best_section;
  }

  // The lowest offset of a box in the section if none stands on its floor: the top of a higher
  // floor next to it, or of a box that is placed later.
  Size floor_without(Part const& part, Index section) const {
    Size const floor = floor_by_section_[section];
    Index lo = section, hi = section;  // the sections of the boxes that could stand on the floor
    Size next = kNoFloor;
    for_each_box(part, [&](Index index) {
      Box const& box = boxes_[index];
      if (box.lo > section || section >= box.hi) return;
      if (offset_by_box_[index] > floor) {
        next = std::min(next, offset_by_box_[index]);
      } else {
        lo = std::min(lo, box.lo);
        hi = std::max(hi, box.hi);
      }
    });
    for_each_box(part, [&](Index index) {
      Box const& box = boxes_[index];
      bool const in_section = box.lo <= section && section < box.hi;
      if (!in_section && box.lo < hi && lo < box.hi)
        next = std::min(next, offset_by_box_[index] + box.rounded);
    });
    return next;
  }

  void set_floor(Index section, Size floor) {
    if (floor_by_section_[section] == floor) return;
    old_surfaces_.push_back({section, floor_by_section_[section], top_by_section_[section]});
    floor_by_section_[section] = floor;
  }

  void place(Index index, Size offset) {
    Box const& box = boxes_[index];
    offset_by_box_[index] = offset;
    for (Index section = box.lo; section < box.hi; ++section) {
      set_floor(section, offset + box.rounded);
      top_by_section_[section] = offset + box.rounded;
      load_by_section_[section] -= box.rounded;
    }
    next_[prev_[index]] = next_[index];
    prev_[next_[index]] = prev_[index];
    placed_.push_back(index);
  }

  // Restores an earlier state, given its numbers of changes and placed boxes. Returns the range
  // of sections that changed.
  Range undo(std::size_t surfaces, std::size_t boxes) {
    Range changed;
    for (; placed_.size() > boxes; placed_.pop_back()) {
      Index const index = placed_.back();
      Box const& box = boxes_[index];
      for (Index section = box.lo; section < box.hi; ++section)
        load_by_section_[section] += box.rounded;
      next_[prev_[index]] = index;
      prev_[next_[index]] = index;
    }
    for (; old_surfaces_.size() > surfaces; old_surfaces_.pop_back()) {
      auto const [section, floor, top] = old_surfaces_.back();
      floor_by_section_[section] = floor;
      top_by_section_[section] = top;
      changed.include({section, section + 1});
    }
    return changed;
  }

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

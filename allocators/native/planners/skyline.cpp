// planners/skyline.cpp: searches for a plan of a given height, or proves that there is none.
// SPDX-License-Identifier: Apache-2.0
#include "planners/skyline.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <tuple>
#include <utility>

namespace allocbench {
namespace {

constexpr std::uint64_t kStepsBetweenStops = std::uint64_t{1} << 20;

}  // namespace

Skyline::Skyline(std::span<Lifetime const> lifetimes, Size alignment) : limit_(kStepsBetweenStops) {
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

Answer Skyline::fit(Size height, Rule rule, std::uint64_t nodes, Stop const& stop) {
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

std::vector<Size> Skyline::offsets() const {
  std::vector<Size> offsets(boxes_.size());
  for (Index index = 0; index < end(); ++index)
    offsets[boxes_[index].block] = offset_by_box_[index];
  return offsets;
}

void Skyline::rank(Rule rule) {
  std::mt19937_64 random(rule.seed);
  std::vector<std::pair<double, double>> keys;
  for (Box const& box : boxes_) {
    auto const size = static_cast<double>(box.rounded), alive = static_cast<double>(box.alive);
    auto const load = *std::max_element(&full_load_by_section_[box.lo],
                                        &full_load_by_section_[box.lo] + (box.hi - box.lo));
    std::pair key{alive, size};
    if (rule.blocks == Rule::Blocks::kLargest) key = {size, alive};
    if (rule.blocks == Rule::Blocks::kMostBytesTime) key = {size * alive, size};
    if (rule.blocks == Rule::Blocks::kHighestLoad) key = {static_cast<double>(load), size * alive};
    if (rule.blocks == Rule::Blocks::kLoadLongest) key = {static_cast<double>(load), alive};
    if (rule.seed != 0) key.first *= 1 + static_cast<double>(random() % 1024) / 2048;
    keys.push_back(key);
  }
  std::vector<Index> order(boxes_.size());
  std::iota(order.begin(), order.end(), Index{0});
  std::ranges::stable_sort(order, std::greater{}, [&](Index box) { return keys[box]; });
  for (Index index = 0; index < end(); ++index) rank_by_box_[order[index]] = index;
}

void Skyline::reset() {
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

// Places the unplaced boxes of a part. Parts that have become disconnected are searched one by one.
bool Skyline::search_parts(Part& whole) {
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
bool Skyline::search(Part& part) {
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
bool Skyline::lift_floors(Part& part) {
  Range touched{std::max(part.changed.lo, part.range.lo), std::min(part.changed.hi, part.range.hi)};
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
bool Skyline::raise_offsets(Range& touched) {
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
bool Skyline::raise_floors(Range const& touched) {
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
void Skyline::find_level_boxes(Range& touched) {
  for (Index const index : nearby_boxes_) {
    Box const& box = boxes_[index];
    bool const level = std::ranges::all_of(
        floors(box), [&](Size floor) { return floor == offset_by_box_[index]; });
    if (level != level_by_box_[index]) touched.include({box.lo, box.hi});
    level_by_box_[index] = level;
  }
}

// Counts the boxes that can stand on each floor, and finds the floors where one is not level.
void Skyline::count_boxes_on_floors(Range const& touched) {
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
bool Skyline::leaves_room() const {
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
void Skyline::find_near(Part const& part, Range const& range) {
  nearby_boxes_.clear();
  for (Index index = part.head; index != end() && boxes_[index].lo < range.hi; index = next_[index])
    if (range.lo < boxes_[index].hi) nearby_boxes_.push_back(index);
}

std::uint64_t Skyline::hash(Part const& part) const {
  std::uint64_t sum = 0;
  for_each_box(part, [&](Index index) { sum += boxes_[index].kind; });
  for (Index section = part.range.lo; section < part.range.hi; ++section)
    sum += mix(mix(mix(floor_by_section_[section]) + top_by_section_[section]) + section);
  return sum;
}

// Chooses the section to branch on, the boxes that can stand on its floor, and the next floor of
// the branch without a box.
Skyline::Branching Skyline::branch(Part const& part, std::vector<Index>& boxes) {
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
  auto const same = std::ranges::unique(boxes, {}, [&](Index index) { return boxes_[index].kind; });
  boxes.erase(same.begin(), same.end());
  std::ranges::sort(boxes, {}, [&](Index index) { return rank_by_box_[index]; });

  Size const next = floor_without(part, section);
  bool const fits = next != kNoFloor && next - floor_by_section_[section] <= slack(section);
  return {section, fits ? next : kNoFloor};
}

// If all floors of a part are equal, a box that spans the part can be placed first: in any plan, it
// can change places with the boxes below it. This does not hold for a box whose size is rounded,
// because only the highest box of a section needs no rounding.
std::optional<Skyline::Index> Skyline::spanning(Part const& part) const {
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
Skyline::Range Skyline::candidates(Part const& part) const {
  if (rule_.sections != Rule::Sections::kFirstBox) return part.range;
  Index first = part.head;
  auto const key = [&](Index box) { return std::pair(offset_by_box_[box], rank_by_box_[box]); };
  for_each_box(part, [&](Index index) {
    if (key(index) < key(first)) first = index;
  });
  return {boxes_[first].lo, boxes_[first].hi};
}

Skyline::Index Skyline::choose_section(Part const& part) const {
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

// The lowest offset of a box in the section if none stands on its floor: the top of a higher floor
// next to it, or of a box that is placed later.
Size Skyline::floor_without(Part const& part, Index section) const {
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

void Skyline::set_floor(Index section, Size floor) {
  if (floor_by_section_[section] == floor) return;
  old_surfaces_.push_back({section, floor_by_section_[section], top_by_section_[section]});
  floor_by_section_[section] = floor;
}

void Skyline::place(Index index, Size offset) {
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
Skyline::Range Skyline::undo(std::size_t surfaces, std::size_t boxes) {
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

}  // namespace allocbench

// planners/lowest_first.cpp: searches for a plan of a given height, always at the lowest offset.
// SPDX-License-Identifier: Apache-2.0
#include "planners/lowest_first.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>

namespace allocbench {
namespace {

constexpr std::uint64_t kStepsBetweenStops = std::uint64_t{1} << 18;
constexpr Units kNoOffset = std::numeric_limits<Units>::max() / 2;

}  // namespace

LowestFirst::LowestFirst(std::span<Lifetime const> lifetimes, std::span<std::uint32_t const> names,
                         Size alignment)
    : alignment_(alignment),
      sections_(sections_of(lifetimes, alignment)),
      limit_(kStepsBetweenStops) {
  for (auto const& box : sections_.boxes) names_.push_back(names[box.block]);
  offsets_.resize(names_.size());
  floors_.resize(sections_.load.size());
  levels_.resize(names_.size() + 1);
}

Answer LowestFirst::fit(Size height, Rule rule, std::uint64_t nodes, Stop const& stop) {
  auto scaled_boxes = scaled(sections_, height, alignment_);
  if (!scaled_boxes) return Answer::kUnknown;
  boxes_ = std::move(scaled_boxes->boxes);
  loads_ = std::move(scaled_boxes->loads);
  unit_ = scaled_boxes->unit;
  height_ = scaled_boxes->height;
  rule_ = rule;
  limit_.start(nodes, stop);
  failed_states_.start(height, nodes);

  std::ranges::fill(offsets_, 0);
  placed_.assign(boxes_.size(), false);
  crossings_.assign(floors_.size(), 0);
  for (Box const& box : boxes_)
    for (Index section = box.lo; section + 1 < box.hi; ++section) ++crossings_[section];
  old_offsets_.clear();
  placed_order_.clear();

  std::vector<Index> all(boxes_.size());
  std::iota(all.begin(), all.end(), Index{0});
  Index lo = 0;
  for (Index section = 0; section < floors_.size(); ++section) {
    if (crossings_[section] != 0) continue;
    if (!search_part(lo, section + 1, all, 0))
      return limit_.reached() || !scaled_boxes->exact ? Answer::kUnknown : Answer::kNone;
    lo = section + 1;
  }
  return Answer::kFound;
}

std::vector<Size> LowestFirst::offsets() const {
  std::vector<Size> offsets(boxes_.size());
  for (std::size_t index = 0; index < boxes_.size(); ++index)
    offsets[boxes_[index].block] = offsets_[index] * unit_;
  return offsets;
}

// Searches the boxes of `unplaced` that span sections of [lo, hi).
bool LowestFirst::search_part(Index lo, Index hi, std::vector<Index> const& unplaced,
                              std::size_t depth) {
  auto& boxes = levels_[depth].unplaced;
  boxes.clear();
  for (Index const index : unplaced)
    if (!placed_[index] && boxes_[index].lo < hi && lo < boxes_[index].hi) boxes.push_back(index);
  if (boxes.empty()) return true;
  sort(boxes);
  return search({lo, hi, 0, 0}, depth);
}

void LowestFirst::sort(std::vector<Index>& boxes) {
  using Key = std::tuple<double, double, double, std::uint32_t>;
  std::vector<std::pair<Key, Index>> keys;
  for (Index const index : boxes) {
    auto const& box = sections_.boxes[index];
    auto const time = -static_cast<double>(box.alive);
    double const area = time * static_cast<double>(box.size);
    double const load = -static_cast<double>(
        *std::max_element(&loads_[box.lo], &loads_[box.lo] + (box.hi - box.lo)));
    auto const name = names_[index];
    Key const key = rule_ == Rule::kTimeAreaLoad   ? Key{time, area, load, name}
                    : rule_ == Rule::kLoadAreaTime ? Key{load, area, time, name}
                                                   : Key{load, time, area, name};
    keys.emplace_back(key, index);
  }
  std::ranges::sort(keys);
  std::ranges::transform(keys, boxes.begin(), &std::pair<Key, Index>::second);
}

// Places the boxes of a level.
bool LowestFirst::search(Part const& part, std::size_t depth) {
  Level& level = levels_[depth];
  if (limit_.count(level.unplaced.size() + (part.hi - part.lo))) return false;
  if (level.unplaced.empty()) return true;
  std::uint64_t const state = find_choices(part, level);
  if (failed_states_.contain(state)) return false;
  for (std::size_t i = 0; i < level.choices.size(); ++i) {
    if (was_tried(level, i)) continue;
    Index const box = level.unplaced[level.choices[i].place];
    auto const boxes = placed_order_.size(), offsets = old_offsets_.size();
    bool const fits = place(part, level.unplaced, box);
    bool const covered = covered_;
    if (fits && search_without(part, level.choices[i], depth)) return true;
    undo(boxes, offsets);
    if (limit_.reached()) return false;
    if (!covered) break;
  }
  failed_states_.add(state);
  return false;
}

// Finds the boxes to try next. Returns a hash of the state.
std::uint64_t LowestFirst::find_choices(Part const& part, Level& level) const {
  Units lowest_end = kNoOffset;
  for (Index const index : level.unplaced)
    lowest_end = std::min(lowest_end, offsets_[index] + boxes_[index].size);
  level.choices.clear();
  std::uint64_t state = 1;
  for (Index place = 0; place < level.unplaced.size(); ++place) {
    Index const index = level.unplaced[place];
    Units const offset = offsets_[index];
    bool const passed_over =
        offset < part.least_offset || (offset == part.least_offset && place < part.least_place);
    state += boxes_[index].kind * (2 * std::uint64_t{offset} + 1 + passed_over);
    if (!passed_over && offset < lowest_end) level.choices.push_back({offset, place});
  }
  std::ranges::sort(level.choices, {},
                    [](Choice const& choice) { return std::pair(choice.offset, choice.place); });
  return state;
}

// Whether an earlier choice is an equal box.
bool LowestFirst::was_tried(Level const& level, std::size_t choice) const {
  auto const kind = [&](std::size_t i) {
    return boxes_[level.unplaced[level.choices[i].place]].kind;
  };
  for (std::size_t i = choice; i-- > 0 && level.choices[i].offset == level.choices[choice].offset;)
    if (kind(i) == kind(choice)) return true;
  return false;
}

// Goes on after a box has been placed.
bool LowestFirst::search_without(Part const& part, Choice choice, std::size_t depth) {
  auto const& unplaced = levels_[depth].unplaced;
  Index const index = unplaced[choice.place];
  Box const& box = boxes_[index];
  bool whole = true;
  for (Index section = box.lo; section + 1 < box.hi; ++section) whole &= --crossings_[section] != 0;
  bool found = true;
  if (whole) {
    auto& rest = levels_[depth + 1].unplaced;
    rest.assign(unplaced.begin(), unplaced.end());
    rest.erase(rest.begin() + choice.place);
    found = search({part.lo, part.hi, choice.offset, choice.place}, depth + 1);
  } else {
    Index lo = part.lo;
    for (Index section = box.lo; found && section < box.hi; ++section) {
      bool const last = section + 1 == box.hi;
      if (!last && crossings_[section] != 0) continue;
      Index const hi = last ? part.hi : section + 1;
      found = search_part(lo, hi, unplaced, depth + 1);
      lo = hi;
    }
  }
  for (Index section = box.lo; section + 1 < box.hi; ++section) ++crossings_[section];
  return found;
}

// Places a box at its offset. Returns false if the unplaced boxes do not fit.
bool LowestFirst::place(Part const& part, std::vector<Index> const& unplaced, Index index) {
  Box const& box = boxes_[index];
  Units const offset = offsets_[index], end = offset + box.size;
  placed_[index] = true;
  placed_order_.push_back(index);
  Units above = 0;  // the highest load above the box
  for (Index section = box.lo; section < box.hi; ++section)
    above = std::max(above, loads_[section] -= box.size);
  covered_ = above > 0;
  if (offset > box.limit || end + above > height_) return false;
  Units const most = *std::max_element(&loads_[part.lo], &loads_[part.lo] + (part.hi - part.lo));
  if (offset + most > height_) return false;

  Index lo = box.lo, hi = box.hi;  // of the boxes whose offsets change
  for (Index const other : unplaced) {
    Box const& next = boxes_[other];
    if (next.hi <= box.lo || box.hi <= next.lo || offsets_[other] >= end || other == index)
      continue;
    if (end > next.limit) return false;
    old_offsets_.push_back({other, offsets_[other]});
    offsets_[other] = end;
    lo = std::min(lo, next.lo);
    hi = std::max(hi, next.hi);
  }
  return fits_above_floors(lo, hi, unplaced);
}

// Whether the unplaced boxes of the sections [lo, hi) fit above the lowest of their offsets.
bool LowestFirst::fits_above_floors(Index lo, Index hi, std::vector<Index> const& unplaced) {
  std::fill(&floors_[lo], &floors_[lo] + (hi - lo), kNoOffset);
  for (Index const other : unplaced) {
    Box const& box = boxes_[other];
    if (placed_[other]) continue;
    Units const offset = offsets_[other];
    Index const end = std::min(box.hi, hi);
    for (Index section = std::max(box.lo, lo); section < end; ++section)
      floors_[section] = std::min(floors_[section], offset);
  }
  bool fits = true;
  for (Index section = lo; section < hi; ++section)
    fits = fits & (loads_[section] == 0 || floors_[section] + loads_[section] <= height_);
  return fits;
}

// Restores an earlier state, given its numbers of placed boxes and of changed offsets.
void LowestFirst::undo(std::size_t boxes, std::size_t offsets) {
  for (; placed_order_.size() > boxes; placed_order_.pop_back()) {
    Box const& box = boxes_[placed_order_.back()];
    placed_[placed_order_.back()] = false;
    for (Index section = box.lo; section < box.hi; ++section) loads_[section] += box.size;
  }
  for (; old_offsets_.size() > offsets; old_offsets_.pop_back())
    offsets_[old_offsets_.back().box] = old_offsets_.back().offset;
}

}  // namespace allocbench

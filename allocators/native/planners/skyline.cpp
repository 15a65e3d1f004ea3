// planners/skyline.cpp: is there a plan of this height? A search with proof.
// SPDX-License-Identifier: Apache-2.0
#include "planners/skyline.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <random>
#include <tuple>
#include <utility>

namespace allocbench {
namespace {

constexpr std::uint64_t kMostRemembered = std::uint64_t{1} << 20;  // states with no plan
constexpr std::uint64_t kStepsBetweenStops = std::uint64_t{1} << 20;

std::uint64_t mix(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace

Skyline::Skyline(std::span<Lifetime const> lifetimes, Size alignment) {
  make_sections(lifetimes, alignment);
  auto const n = boxes_.size(), sections = full_load_.size();
  rank_.resize(n);
  next_.resize(n + 1);
  prev_.resize(n + 1);
  offset_.resize(n);
  floor_.resize(sections);
  least_.resize(sections);
  rounding_.resize(sections);
  on_floor_.resize(sections);
  uneven_.resize(sections);
  level_.resize(n);
}

void Skyline::make_sections(std::span<Lifetime const> lifetimes, Size alignment) {
  std::vector<Index> begins(lifetimes.size());
  std::iota(begins.begin(), begins.end(), Index{0});
  auto ends = begins;
  std::ranges::stable_sort(begins, {}, [&](auto block) { return lifetimes[block].first; });
  std::ranges::stable_sort(ends, {}, [&](auto block) { return lifetimes[block].last; });

  // A section is complete when a block ends and another has begun since the last was completed.
  std::vector<Index> lo(lifetimes.size()), hi(lifetimes.size());
  Index sections = 0;
  bool begun = false;
  auto ending = ends.begin();
  auto const end_until = [&](std::uint32_t now) {
    for (; ending != ends.end() && lifetimes[*ending].last <= now; ++ending) {
      sections += std::exchange(begun, false);
      hi[*ending] = sections;
    }
  };
  for (Index const block : begins) {
    end_until(lifetimes[block].first);
    lo[block] = sections;
    begun = true;
  }
  end_until(kForever);

  full_load_.assign(sections, 0);
  for (Index const block : begins) {
    auto const [size, first, last] = lifetimes[block];
    Size const rounded = round_up(size, alignment);
    boxes_.push_back({lo[block], hi[block], size, rounded, last - first, block,
                      mix(mix(mix(size) + lo[block]) + hi[block])});
    for (Index at = lo[block]; at < hi[block]; ++at) full_load_[at] += rounded;
  }
}

Skyline::Answer Skyline::fit(Size height, Rule rule, std::uint64_t nodes,
                             std::function<bool()> const& stop) {
  auto const remembered = std::bit_ceil(std::min(nodes, kMostRemembered));
  if (height != height_ || hopeless_.size() != remembered) hopeless_.assign(remembered, 0);
  height_ = height;
  rule_ = rule;
  nodes_left_ = nodes;
  stop_ = &stop;
  stopped_ = false;
  rank(rule);
  reset();
  Range const all{0, static_cast<Index>(floor_.size())};
  Part whole{all, next_[end()], boxes_.size(), all};
  if (search_parts(whole)) return Answer::kFound;
  return stopped_ ? Answer::kUnknown : Answer::kNone;
}

std::vector<Size> Skyline::offsets() const {
  std::vector<Size> offsets(boxes_.size());
  for (Index at = 0; at < end(); ++at) offsets[boxes_[at].block] = offset_[at];
  return offsets;
}

void Skyline::rank(Rule rule) {
  std::mt19937_64 random(rule.seed);
  std::vector<std::pair<double, double>> keys;
  for (Box const& box : boxes_) {
    auto const size = static_cast<double>(box.rounded), alive = static_cast<double>(box.alive);
    auto const load =
        *std::max_element(&full_load_[box.lo], &full_load_[box.lo] + (box.hi - box.lo));
    std::pair key{alive, size};
    if (rule.blocks == Rule::Blocks::kLargest) key = {size, alive};
    if (rule.blocks == Rule::Blocks::kMostBytesTime) key = {size * alive, size};
    if (rule.blocks == Rule::Blocks::kHighestLoad) key = {static_cast<double>(load), size * alive};
    if (rule.seed != 0) key.first *= 1 + static_cast<double>(random() % 1024) / 2048;
    keys.push_back(key);
  }
  std::vector<Index> order(boxes_.size());
  std::iota(order.begin(), order.end(), Index{0});
  std::ranges::stable_sort(order, std::greater{}, [&](Index box) { return keys[box]; });
  for (Index at = 0; at < end(); ++at) rank_[order[at]] = at;
}

void Skyline::reset() {
  std::ranges::fill(floor_, 0);
  load_ = full_load_;
  old_floors_.clear();
  placed_.clear();
  for (Index at = 0; at <= end(); ++at) {
    next_[at] = at == end() ? 0 : at + 1;
    prev_[at] = at == 0 ? end() : at - 1;
  }
}

// Finds places for the unplaced boxes of a part, or of the parts that it has fallen into.
bool Skyline::search_parts(Part& whole) {
  std::vector<Part> parts;
  each(whole, [&](Index at) {
    Box const& box = boxes_[at];
    if (parts.empty() || box.lo >= parts.back().range.hi)
      parts.push_back({{box.lo, box.hi}, at, 0, whole.changed});
    parts.back().range.include({box.lo, box.hi});
    ++parts.back().boxes;
  });
  std::ranges::stable_sort(parts, {}, &Part::boxes);
  return std::ranges::all_of(parts, [&](Part& part) {
    bool const found = search(part);
    whole.changed.include(part.changed);
    return found;
  });
}

// Finds places for the boxes of a part; what it does in vain is for the caller to undo.
bool Skyline::search(Part& part) {
  std::uint64_t state = 0;  // as it was at first: its branches are all tried in this loop
  std::vector<Index> choices;
  while (!out_of_budget(part) && lift_floors(part)) {
    std::uint64_t const now = hash(part);
    if (hopeless_[now % hopeless_.size()] == now) break;
    if (state == 0) state = now;
    auto const [section, next_floor] = branch(part, choices);
    auto const floors = old_floors_.size(), boxes = placed_.size();
    Size const floor = floor_[section];
    for (Index const box : choices) {
      place(box, floor);
      Part rest = part;
      rest.changed.include({boxes_[box].lo, boxes_[box].hi});
      if (box == part.head) rest.head = next_[box];
      if (search_parts(rest)) return true;
      part.changed.include(rest.changed);
      part.changed.include(undo(floors, boxes));
      if (stopped_) return false;
    }
    if (next_floor == kNoFloor) break;
    set_floor(section, next_floor);
    part.changed.include({section, section + 1});
  }
  if (state != 0 && !stopped_) hopeless_[state % hopeless_.size()] = state;
  return false;
}

bool Skyline::out_of_budget(Part const& part) {
  steps_ += part.boxes * (part.range.hi - part.range.lo);
  if (steps_ >= kStepsBetweenStops) {
    steps_ = 0;
    stopped_ = stopped_ || (*stop_)();
  }
  stopped_ = stopped_ || nodes_left_ == 0;
  if (!stopped_) --nodes_left_;
  return stopped_;
}

// Raises floors as far as is certain, and brings up to date what is known of boxes and sections
// where floors have changed. False when the boxes left do not fit.
bool Skyline::lift_floors(Part& part) {
  Range touched{std::max(part.changed.lo, part.range.lo), std::min(part.changed.hi, part.range.hi)};
  part.changed = {};
  bool fits = true;
  Range near = touched;
  find_near(part, near);
  for (Index const at : near_) {
    Box const& box = boxes_[at];
    Size const offset = *std::ranges::max_element(floors(box));
    if (offset != offset_[at]) touched.include({box.lo, box.hi});
    offset_[at] = offset;
    fits = fits && offset + box.size <= height_;
  }
  if (touched != near) find_near(part, near = touched);
  for (Index s = touched.lo; s < touched.hi; ++s) least_[s] = kNoFloor, rounding_[s] = 0;
  for (Index const at : near_)
    for (Index const s : touched.common(boxes_[at].lo, boxes_[at].hi)) {
      least_[s] = std::min(least_[s], offset_[at]);
      rounding_[s] = std::max(rounding_[s], boxes_[at].rounded - boxes_[at].size);
    }
  for (Index s = touched.lo; s < touched.hi; ++s) {
    set_floor(s, least_[s]);
    fits = fits && floor_[s] + load_[s] <= height_ + rounding_[s];
  }
  for (Index const at : near_) {
    Box const& box = boxes_[at];
    bool const level = std::ranges::min(floors(box)) == offset_[at];
    if (level != level_[at]) touched.include({box.lo, box.hi});
    level_[at] = level;
  }
  if (touched != near) find_near(part, near = touched);
  for (Index s = touched.lo; s < touched.hi; ++s) on_floor_[s] = 0, uneven_[s] = false;
  for (Index const at : near_)
    for (Index const s : touched.common(boxes_[at].lo, boxes_[at].hi)) {
      if (floor_[s] != offset_[at]) continue;
      ++on_floor_[s];
      if (!level_[at]) uneven_[s] = true;
    }
  return fits;
}

// The unplaced boxes that span some of these sections.
void Skyline::find_near(Part const& part, Range const& range) {
  near_.clear();
  for (Index at = part.head; at != end() && boxes_[at].lo < range.hi; at = next_[at])
    if (range.lo < boxes_[at].hi) near_.push_back(at);
}

std::uint64_t Skyline::hash(Part const& part) const {
  std::uint64_t sum = 0;
  each(part, [&](Index at) { sum += boxes_[at].kind; });
  for (Index s = part.range.lo; s < part.range.hi; ++s) sum += mix(mix(floor_[s]) + s);
  return sum;
}

// The section to branch on, the boxes that can lie on its floor, and what if none does.
Skyline::Branching Skyline::branch(Part const& part, std::vector<Index>& boxes) {
  boxes.clear();
  if (auto const box = spanning(part)) {
    boxes.push_back(*box);
    return {boxes_[*box].lo, kNoFloor};
  }
  Index const section = choose_section(part);
  each(part, [&](Index at) {
    Box const& box = boxes_[at];
    if (box.lo <= section && section < box.hi && offset_[at] == floor_[section])
      boxes.push_back(at);
  });
  std::ranges::sort(boxes, [&](Index a, Index b) {
    return std::tie(boxes_[a].kind, rank_[a]) < std::tie(boxes_[b].kind, rank_[b]);
  });
  auto const same = std::ranges::unique(boxes, {}, [&](Index at) { return boxes_[at].kind; });
  boxes.erase(same.begin(), same.end());
  std::ranges::sort(boxes, {}, [&](Index at) { return rank_[at]; });

  Size const next = floor_without(part, section);
  bool const fits = next != kNoFloor && next - floor_[section] <= slack(section);
  return {section, fits ? next : kNoFloor};
}

// On a level floor, a box that spans all of it may as well come first: what is below and above it
// in some plan can change places, unless rounding makes the highest box differ from the others.
std::optional<Skyline::Index> Skyline::spanning(Part const& part) const {
  auto const floors = std::span(floor_).subspan(part.range.lo, part.range.hi - part.range.lo);
  if (std::ranges::adjacent_find(floors, std::ranges::not_equal_to{}) != floors.end()) return {};
  std::optional<Index> found;
  each(part, [&](Index at) {
    Box const& box = boxes_[at];
    if (box.lo == part.range.lo && box.hi == part.range.hi && box.size == box.rounded) found = at;
  });
  return found;
}

Skyline::Index Skyline::choose_section(Part const& part) const {
  bool const lowest = rule_.sections == Rule::Sections::kLowest;
  std::tuple<Size, Size, Size> best{kNoFloor, kNoFloor, kNoFloor};
  Index section = part.range.lo;
  for (Index s = part.range.lo; s < part.range.hi; ++s) {
    if (uneven_[s]) continue;
    Size const branches = on_floor_[s] + (slack(s) > 0);
    std::tuple const key{lowest ? floor_[s] : 0, branches, slack(s)};
    if (key < best) best = key, section = s;
  }
  return section;
}

// Where the lowest box of a section can lie when none lies on its floor: on a wall beside it, or on
// a box that is yet to come.
Size Skyline::floor_without(Part const& part, Index section) const {
  Size const floor = floor_[section];
  Index lo = section, hi = section;  // the sections of the boxes that could lie on the floor
  Size next = kNoFloor;
  each(part, [&](Index at) {
    Box const& box = boxes_[at];
    if (box.lo > section || section >= box.hi) return;
    if (offset_[at] > floor) {
      next = std::min(next, offset_[at]);
    } else {
      lo = std::min(lo, box.lo);
      hi = std::max(hi, box.hi);
    }
  });
  each(part, [&](Index at) {
    Box const& box = boxes_[at];
    bool const across = box.lo <= section && section < box.hi;
    if (!across && box.lo < hi && lo < box.hi) next = std::min(next, offset_[at] + box.rounded);
  });
  return next;
}

void Skyline::set_floor(Index section, Size floor) {
  if (floor_[section] == floor) return;
  old_floors_.emplace_back(section, floor_[section]);
  floor_[section] = floor;
}

void Skyline::place(Index at, Size offset) {
  Box const& box = boxes_[at];
  offset_[at] = offset;
  for (Index s = box.lo; s < box.hi; ++s) {
    set_floor(s, offset + box.rounded);
    load_[s] -= box.rounded;
  }
  next_[prev_[at]] = next_[at];
  prev_[next_[at]] = prev_[at];
  placed_.push_back(at);
}

// Takes back what was done beyond so many changes of floors and so many placed boxes; tells where.
Skyline::Range Skyline::undo(std::size_t floors, std::size_t boxes) {
  Range changed;
  for (; placed_.size() > boxes; placed_.pop_back()) {
    Index const at = placed_.back();
    Box const& box = boxes_[at];
    for (Index s = box.lo; s < box.hi; ++s) load_[s] += box.rounded;
    next_[prev_[at]] = at;
    prev_[next_[at]] = at;
  }
  for (; old_floors_.size() > floors; old_floors_.pop_back()) {
    auto const [section, floor] = old_floors_.back();
    floor_[section] = floor;
    changed.include({section, section + 1});
  }
  return changed;
}

}  // namespace allocbench

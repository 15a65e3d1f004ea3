// planners/beam.hpp: searches for a plan of a given height among the most promising partial plans.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "planners/boxes.hpp"
#include "planners/planners.hpp"

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
  Beam(std::span<Lifetime const> lifetimes, Size alignment)
      : alignment_(alignment), sections_(sections_of(lifetimes, alignment)) {
    boxes_on_floor_.resize(sections_.load.size());
  }

  // Searches for a plan of at most `height` bytes. The waste of a partial plan is divided by the
  // power `exponent` of the area (bytes times sections) that it has placed. `stop` is called for
  // each partial plan; returning true ends the search. The result depends only on the arguments.
  bool fit(Size height, double exponent, std::size_t width, Stop const& stop) {
    if (!start(height)) return false;
    exponent_ = exponent;
    while (!queue_.empty()) {
      extensions_.clear();
      for (std::size_t expanded = 0; expanded < width && !queue_.empty(); ++expanded) {
        if (stop()) return false;
        std::ranges::pop_heap(queue_, std::greater{});
        Index const best = queue_.back().second;
        queue_.pop_back();
        if (expand(best)) return true;
      }
      keep_best(width);
      queue_.clear();
      if (next_level_.size() < extensions_.size()) next_level_.resize(extensions_.size());
      for (Index i = 0; i < extensions_.size(); ++i) {
        if (stop()) return false;
        next_level_[i] = level_[extensions_[i].parent];
        extend(next_level_[i], extensions_[i]);
        queue_.emplace_back(extensions_[i].badness, i);
      }
      std::ranges::make_heap(queue_, std::greater{});
      level_.swap(next_level_);
      used_ = extensions_.size();
    }
    return false;
  }

  // The share of `height` that the boxes leave free, on average over the sections. A beam needs
  // some: where nothing can be wasted, all partial plans are equally good.
  double free_share(Size height) const {
    double load = 0;
    for (Size const bytes : sections_.load) load += static_cast<double>(bytes);
    return 1 - load / (static_cast<double>(height) * static_cast<double>(sections_.load.size()));
  }

  // One per lifetime, valid after fit() has returned true.
  std::vector<Size> const& offsets() const { return offsets_; }

 private:
  static constexpr double kLeastWaste = 8;  // units; makes plans without waste comparable

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

  // Returns false if a section is too full.
  bool start(Size height) {
    auto scaled_boxes = scaled(sections_, height, alignment_);
    if (!scaled_boxes) return false;
    boxes_ = std::move(scaled_boxes->boxes);
    full_loads_ = std::move(scaled_boxes->loads);
    unit_ = scaled_boxes->unit;
    height_ = scaled_boxes->height;
    Partial root;
    root.unplaced.resize(boxes_.size());
    std::iota(root.unplaced.begin(), root.unplaced.end(), Index{0});
    root.floors.assign(full_loads_.size(), 0);
    root.loads = full_loads_;
    root.offsets.assign(boxes_.size(), 0);
    if (level_.empty()) level_.resize(1);
    level_.front() = std::move(root);
    used_ = 1;
    queue_ = {{0, 0}};
    return true;
  }

  // Adds all extensions of a partial plan, and the same plan with its lowest floor raised. Returns
  // true if an extension is complete; then offsets_ is set.
  bool expand(Index parent) {
    Partial const& partial = level_[parent];
    Index const section = choose_section(partial);
    Units const floor = partial.floors[section];
    Index lo = section, hi = section;  // the sections of the boxes that could stand on the floor
    Units next = std::numeric_limits<Units>::max();
    auto const spans = [&](Box const& box) { return box.lo <= section && section < box.hi; };
    candidates_.clear();
    for (Index const index : partial.unplaced) {
      Box const& box = boxes_[index];
      if (!spans(box)) continue;
      if (partial.offsets[index] > floor) {
        next = std::min(next, partial.offsets[index]);
      } else {
        candidates_.push_back(index);
        lo = std::min(lo, box.lo);
        hi = std::max(hi, box.hi);
      }
    }
    for (Index const index : partial.unplaced) {
      Box const& box = boxes_[index];
      if (!spans(box) && box.lo < hi && lo < box.hi)
        next = std::min(next, partial.offsets[index] + box.size);
    }
    std::ranges::stable_sort(candidates_, {}, [&](Index index) { return boxes_[index].kind; });
    auto const same =
        std::ranges::unique(candidates_, {}, [&](Index index) { return boxes_[index].kind; });
    candidates_.erase(same.begin(), same.end());

    for (Index const index : candidates_) {
      scratch_ = partial;
      Extension extension{parent, index, floor, 0, 0};
      if (!extend(scratch_, extension)) continue;
      if (scratch_.unplaced.empty()) {
        offsets_.resize(boxes_.size());
        for (std::size_t i = 0; i < boxes_.size(); ++i)
          offsets_[boxes_[i].block] = scratch_.offsets[i] * unit_;
        return true;
      }
      extension.badness = badness(scratch_);
      extension.state = state(scratch_);
      extensions_.push_back(extension);
    }
    Units const slack = height_ - floor - partial.loads[section];
    if (next == std::numeric_limits<Units>::max() || next - floor > slack) return false;
    scratch_ = partial;
    if (!lift(scratch_, section, section + 1, next)) return false;
    if (used_ == level_.size()) level_.emplace_back();
    queue_.emplace_back(badness(scratch_), used_);
    std::ranges::push_heap(queue_, std::greater{});
    std::swap(level_[used_++], scratch_);
    return false;
  }

  // Places a box. Returns false if the unplaced boxes do not fit.
  bool extend(Partial& partial, Extension const& extension) const {
    Box const& box = boxes_[extension.box];
    partial.offsets[extension.box] = extension.floor;
    partial.unplaced.erase(std::ranges::lower_bound(partial.unplaced, extension.box));
    partial.area += static_cast<double>(box.size) * (box.hi - box.lo);
    for (Index section = box.lo; section < box.hi; ++section) partial.loads[section] -= box.size;
    return lift(partial, box.lo, box.hi, extension.floor + box.size);
  }

  // Raises the floors of the sections [lo, hi) to `floor`, then every floor near them to the lowest
  // offset of its unplaced boxes. Returns false if the unplaced boxes do not fit.
  bool lift(Partial& partial, Index lo, Index hi, Units floor) const {
    Index touched_lo = lo, touched_hi = hi;
    bool fits = true;
    for (Index const index : partial.unplaced) {
      Box const& box = boxes_[index];
      if (box.lo >= hi) break;
      if (box.hi <= lo || partial.offsets[index] >= floor) continue;
      partial.offsets[index] = floor;
      fits = fits && floor <= box.limit;
      touched_lo = std::min(touched_lo, box.lo);
      touched_hi = std::max(touched_hi, box.hi);
    }
    if (!fits) return false;
    auto* const floors = partial.floors.data();
    std::fill(floors + touched_lo, floors + touched_hi, height_);
    for (Index const index : partial.unplaced) {
      Box const& box = boxes_[index];
      if (box.lo >= touched_hi) break;
      Units const offset = partial.offsets[index];
      Index const end = std::min(box.hi, touched_hi);
      for (Index section = std::max(box.lo, touched_lo); section < end; ++section)
        floors[section] = std::min(floors[section], offset);
    }
    for (Index section = touched_lo; section < touched_hi; ++section)
      fits = fits && floors[section] + partial.loads[section] <= height_;
    return fits;
  }

  // Of the sections with the lowest floor, the one with the fewest branches. All boxes on the
  // lowest floor are level, so the branches are exhaustive.
  Index choose_section(Partial const& partial) {
    Units lowest = std::numeric_limits<Units>::max();
    for (Index const index : partial.unplaced) lowest = std::min(lowest, partial.offsets[index]);
    std::ranges::fill(boxes_on_floor_, 0);
    for (Index const index : partial.unplaced)
      if (partial.offsets[index] == lowest)
        for (Index section = boxes_[index].lo; section < boxes_[index].hi; ++section)
          ++boxes_on_floor_[section];
    Index best = 0;
    std::pair best_key{kNone, std::numeric_limits<Units>::max()};
    for (Index section = 0; section < partial.floors.size(); ++section) {
      if (boxes_on_floor_[section] == 0) continue;
      Units const slack = height_ - partial.floors[section] - partial.loads[section];
      std::pair const key{boxes_on_floor_[section] + (slack > 0), slack};
      if (key < best_key) best_key = key, best = section;
    }
    return best;
  }

  double badness(Partial const& partial) const {
    double waste = 0;  // the slack used up so far
    for (std::size_t section = 0; section < full_loads_.size(); ++section)
      waste += static_cast<double>(partial.floors[section] + partial.loads[section]) -
               static_cast<double>(full_loads_[section]);
    return (waste + kLeastWaste) / std::pow(partial.area + 1, exponent_);
  }

  std::uint64_t state(Partial const& partial) const {
    std::uint64_t sum = 0;
    for (Index const index : partial.unplaced) sum += boxes_[index].kind;
    for (std::size_t section = 0; section < partial.floors.size(); ++section)
      sum += mix(mix(partial.floors[section]) + section);
    return sum;
  }

  void keep_best(std::size_t width) {
    std::ranges::sort(extensions_, {}, [](Extension const& extension) {
      return std::tuple(extension.badness, extension.parent, extension.box);
    });
    std::unordered_set<std::uint64_t> states;
    std::erase_if(extensions_, [&](Extension const& extension) {
      return states.size() >= width || !states.insert(extension.state).second;
    });
  }

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

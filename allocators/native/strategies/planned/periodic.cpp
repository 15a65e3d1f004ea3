// strategies/planned/periodic.cpp: plans a step that repeats, and remembers such plans.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/planned/periodic.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "planners/placed_blocks.hpp"

namespace allocbench {
namespace {

constexpr std::uint32_t kLongest = 34;  // above the number of bits of any duration

bool wraps(Arc const& arc) { return arc.last <= arc.first; }

// The lifetime of an arc within its own step.
Lifetime head(Arc const& arc) { return {arc.size, arc.first, wraps(arc) ? kForever : arc.last}; }

// A wrapping arc has a tail in the next step. Because steps repeat, the tail is also alive at the
// start of this step.
bool has_tail(Arc const& arc) { return wraps(arc) && arc.last > 0; }
Lifetime tail(Arc const& arc) { return {arc.size, 0, arc.last}; }

Size best_gap(PlacedBlocks const& placed, Arc const& arc) {
  std::optional<Size> best;
  Size smallest = 0;  // size of the best gap in bytes
  auto const see = [&](Size offset, Size end) {
    if (best && (wraps(arc) || end - offset >= smallest)) return;
    best = offset;
    smallest = end - offset;
  };
  wraps(arc) ? placed.gaps(head(arc), tail(arc), see) : placed.gaps(head(arc), see);
  return *best;
}

// The numbers up to `count` in the order of their keys, each behind its key.
template <class Key>
auto order_by(std::size_t count, Key key) {
  std::vector<std::pair<decltype(key(0u)), std::uint32_t>> order;
  for (std::uint32_t i = 0; i < count; ++i) order.emplace_back(key(i), i);
  std::ranges::sort(order);
  return order;
}

// The number of instants that the arcs cover.
std::uint32_t instants_of(std::span<Arc const> arcs) {
  std::uint32_t instants = 1;
  for (Arc const& arc : arcs) instants = std::max({instants, arc.first + 1, arc.last});
  return instants;
}

std::vector<Lifetime> lifetimes_of(std::span<Arc const> arcs) {
  std::vector<Lifetime> lifetimes;
  for (Arc const& arc : arcs) {
    lifetimes.push_back(head(arc));
    if (has_tail(arc)) lifetimes.push_back(tail(arc));
  }
  return lifetimes;
}

// The highest end of any block, by ranges of time, in a segment tree: each range is half of its
// parent. Every call takes O(log n) time for n instants.
class Ceiling {
 public:
  explicit Ceiling(std::size_t instants) : leaves_(std::bit_ceil(instants)), ranges_(2 * leaves_) {}

  // The highest end of the blocks alive at any instant in [first, last).
  Size over(std::size_t first, std::size_t last) const {
    Size highest = 0;
    for_each_range(first, last,
                   [&](std::size_t i) { highest = std::max(highest, ranges_[i].any); });
    for (std::size_t i : {first, last - 1})
      for (i += leaves_; i > 0; i /= 2) highest = std::max(highest, ranges_[i].all);
    return highest;
  }

  // Adds a block with end offset `end` that is alive in [first, last).
  void raise(std::size_t first, std::size_t last, Size end) {
    for_each_range(first, last, [&](std::size_t i) {
      ranges_[i].all = std::max(ranges_[i].all, end);
      for (; i > 0 && ranges_[i].any < end; i /= 2) ranges_[i].any = end;
    });
  }

 private:
  struct Range {
    Size any = 0;  // highest end of the blocks alive at any of its instants
    Size all = 0;  // highest end of the blocks that were added for the whole range
  };

  // Visits the fewest ranges that make up these instants.
  template <class Visit>
  void for_each_range(std::size_t first, std::size_t last, Visit visit) const {
    for (first += leaves_, last += leaves_; first < last; first /= 2, last /= 2) {
      if (first % 2 != 0) visit(first++);
      if (last % 2 != 0) visit(--last);
    }
  }

  std::size_t leaves_;
  std::vector<Range> ranges_;  // range i has the halves 2 * i and 2 * i + 1
};

// For each instant up to the last one of an arc: the number of arcs that begin before it. Lifetimes
// overlap in the same way when counted in these numbers.
std::vector<std::uint32_t> begun_before(std::span<Arc const> arcs) {
  std::uint32_t instants = 0;
  for (Arc const& arc : arcs) instants = std::max({instants, arc.first, arc.last});
  std::vector<std::uint32_t> begun(std::size_t{instants} + 2);
  for (Arc const& arc : arcs) ++begun[arc.first + 1];
  for (std::size_t instant = 1; instant < begun.size(); ++instant)
    begun[instant] += begun[instant - 1];
  return begun;
}

std::uint64_t problem_of(std::span<Arc const> arcs, Size alignment, std::span<Size const> given,
                         ArcOrder order) {
  auto const begun = begun_before(arcs);
  Hash hash;
  hash.add(static_cast<std::uint64_t>(order));
  hash.add(given.size());
  for (Size const offset : given) hash.add(offset);
  for (Arc const& arc : arcs) {
    hash.add(round_up(arc.size, alignment));
    hash.add(std::uint64_t{begun[arc.first]} << 32 | begun[arc.last]);
  }
  return hash.value();
}

}  // namespace

Plan plan_periodic(std::span<Arc const> arcs, Size alignment, std::span<Size const> given,
                   ArcOrder order) {
  std::vector<Arc> rounded(arcs.begin(), arcs.end());
  for (Arc& arc : rounded) arc.size = round_up(arc.size, alignment);
  PlacedBlocks placed(lifetimes_of(rounded));
  Plan plan{std::vector<Size>(arcs.size()), 0};
  std::uint32_t const instants = instants_of(arcs);
  auto const duration = [&](Arc const& arc) {
    std::uint32_t const end = wraps(arc) ? instants + arc.last : arc.last;
    return order == ArcOrder::kSize ? 0u
                                    : static_cast<std::uint32_t>(std::bit_width(end - arc.first));
  };
  // Arcs with given offsets come first, lowest first.
  auto const key = [&](std::uint32_t i) {
    Arc const& arc = rounded[i];
    return i < given.size() ? std::tuple(0u, given[i], 0u)
                            : std::tuple(kLongest - duration(arc), ~arc.size, arc.first);
  };
  for (auto const& [_, i] : order_by(rounded.size(), key)) {
    Arc const& arc = rounded[i];
    plan.offsets[i] = i < given.size() ? given[i] : best_gap(placed, arc);
    placed.add(head(arc), plan.offsets[i]);
    if (has_tail(arc)) placed.add(tail(arc), plan.offsets[i]);
  }
  plan.height = placed.height();
  return plan;
}

Plan plan_in_order(std::span<Arc const> arcs, std::span<Size const> offsets) {
  std::uint32_t const instants = instants_of(arcs);
  Ceiling ceiling(instants);
  Plan plan{std::vector<Size>(arcs.size()), 0};
  auto const key = [&](std::uint32_t i) { return offsets[i]; };
  for (auto const& [_, i] : order_by(arcs.size(), key)) {
    Arc const& arc = arcs[i];
    std::uint32_t const head_end = wraps(arc) ? instants : arc.last;
    Size offset = ceiling.over(arc.first, head_end);
    if (has_tail(arc)) offset = std::max(offset, ceiling.over(0, arc.last));
    ceiling.raise(arc.first, head_end, offset + arc.size);
    if (has_tail(arc)) ceiling.raise(0, arc.last, offset + arc.size);
    plan.offsets[i] = offset;
    plan.height = std::max(plan.height, offset + arc.size);
  }
  return plan;
}

Size max_load(std::span<Arc const> arcs) {
  std::vector<Size> allocated(instants_of(arcs) + 1), freed(allocated.size());  // by instant
  for (Arc const& arc : arcs) {
    allocated[arc.first] += arc.size;
    freed[arc.last] += arc.size;
    if (wraps(arc)) allocated[0] += arc.size;
  }
  Size load = 0, highest = 0;
  for (std::size_t instant = 0; instant < allocated.size(); ++instant) {
    load += allocated[instant] - freed[instant];
    highest = std::max(highest, load);
  }
  return highest;
}

Plan PeriodicMemo::plan(std::span<Arc const> arcs, Size alignment, std::span<Size const> given,
                        ArcOrder order) {
  std::uint64_t const problem = problem_of(arcs, alignment, given, order);
  for (Search const& search : searches_)
    if (search.problem == problem && search.plan.offsets.size() == arcs.size()) return search.plan;
  Search& search = searches_[next_];
  next_ = (next_ + 1) % kMost;
  search = {problem, plan_periodic(arcs, alignment, given, order)};
  return search.plan;
}

}  // namespace allocbench

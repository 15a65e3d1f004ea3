// planners/periodic.cpp: a step that comes again and again.
// SPDX-License-Identifier: Apache-2.0
#include "planners/periodic.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>

#include "planners/placed_blocks.hpp"

namespace allocbench {
namespace {

bool wraps(Arc const& arc) { return arc.last <= arc.first; }

// The lifetime of an arc that does not wrap, or the part of one that does in its own step.
Lifetime head(Arc const& arc) { return {arc.size, arc.first, wraps(arc) ? kForever : arc.last}; }

// The part in the next step, of the same kind: so it is alive when that step begins.
Lifetime tail(Arc const& arc) { return {arc.size, 0, arc.last}; }

template <class Visit>
void alive_with(PlacedBlocks const& placed, Arc const& arc, Visit visit) {
  wraps(arc) ? placed.alive_with(head(arc), tail(arc), visit) : placed.alive_with(head(arc), visit);
}

Size best_gap(PlacedBlocks const& placed, Arc const& arc) {
  std::optional<Size> best;
  Size smallest = 0;  // bytes of the best gap
  Size end = 0;       // of the blocks looked at
  alive_with(placed, arc, [&](Size offset, Size placed_end) {
    if (end + arc.size <= offset && (!best || offset - end < smallest)) {
      best = end;
      smallest = offset - end;
    }
    end = std::max(end, placed_end);
  });
  return best.value_or(end);
}

Size top(PlacedBlocks const& placed, Arc const& arc) {
  Size end = 0;
  alive_with(placed, arc, [&](Size, Size placed_end) { end = std::max(end, placed_end); });
  return end;
}

using Order = std::vector<std::uint32_t>;

template <class Key>
Order order_by(std::size_t count, Key key) {
  Order order(count);
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, {}, key);
  return order;
}

template <class Place>
Plan place_all(std::span<Arc const> arcs, Order const& order, Place place) {
  std::vector<Lifetime> lifetimes;
  for (Arc const& arc : arcs) {
    lifetimes.push_back(head(arc));
    if (wraps(arc)) lifetimes.push_back(tail(arc));
  }
  PlacedBlocks placed(lifetimes);
  Plan plan{std::vector<Size>(arcs.size()), 0};
  for (std::uint32_t const at : order) {
    Arc const& arc = arcs[at];
    plan.offsets[at] = place(placed, arc);
    placed.add(head(arc), plan.offsets[at]);
    if (wraps(arc) && arc.last > 0) placed.add(tail(arc), plan.offsets[at]);
  }
  plan.height = placed.height();
  return plan;
}

}  // namespace

Plan plan_periodic(std::span<Arc const> arcs, Size alignment) {
  std::vector<Arc> rounded(arcs.begin(), arcs.end());
  for (Arc& arc : rounded) arc.size = round_up(arc.size, alignment);
  auto const key = [&](std::uint32_t at) {
    return std::tuple(~rounded[at].size, rounded[at].first, at);
  };
  return place_all(rounded, order_by(rounded.size(), key), best_gap);
}

Plan plan_in_order(std::span<Arc const> arcs, Plan const& earlier) {
  auto const key = [&](std::uint32_t at) { return std::tuple(earlier.offsets[at], at); };
  return place_all(arcs, order_by(arcs.size(), key), top);
}

}  // namespace allocbench

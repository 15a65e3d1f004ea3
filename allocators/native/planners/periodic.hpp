// planners/periodic.hpp: a step that comes again and again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "planners/plan.hpp"

namespace allocbench {

// A block of a step that repeats, alive from the step's request `first` up to but not including
// its request `last`. One whose `last` is not above `first` is freed in the next step, before the
// next step's request `last`.
struct Arc {
  Size size;
  std::uint32_t first;
  std::uint32_t last;
};

// The largest block first, in the gap that fits best, lowest among equals: what `greedy_by_size`
// does, on a circle of time. Sizes are rounded up to
// `alignment`. O(n^2) steps.
Plan plan_periodic(std::span<Arc const> arcs, Size alignment);

// The same blocks with other sizes, above one another as in an earlier plan and as low as that
// allows. Where all sizes are in proportion between those of two such plans, offsets in the same
// proportion between theirs keep blocks apart: what lies above what is the same in both.
Plan plan_in_order(std::span<Arc const> arcs, Plan const& earlier);

}  // namespace allocbench

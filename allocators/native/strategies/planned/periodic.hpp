// strategies/planned/periodic.hpp: a step that comes again and again.
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
// does, on a circle of time; but the first ones lie at the offsets that are given for them, apart
// from one another. Sizes are rounded up to `alignment`. O(n^2) steps.
Plan plan_periodic(std::span<Arc const> arcs, Size alignment, std::span<Size const> given = {});

// The same blocks with other sizes, above one another as in an earlier plan, which had these
// offsets, and as low as that allows. Where all sizes are in proportion between those of two such
// plans, offsets in the same proportion between theirs keep blocks apart: what lies above what is
// the same in both. O(n log n) steps.
Plan plan_in_order(std::span<Arc const> arcs, std::span<Size const> offsets);

// The largest sum of the sizes alive at one request. O(n) steps, and one for each request.
Size max_load(std::span<Arc const> arcs);

}  // namespace allocbench

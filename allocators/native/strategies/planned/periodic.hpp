// strategies/planned/periodic.hpp: plans a step that repeats.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "planners/plan.hpp"

namespace allocbench {

// A block of a repeating step, alive from the step's request `first` up to but not including
// request `last`. If `last` <= `first`, it is freed in the next step, before that step's request
// `last`.
struct Arc {
  Size size;
  std::uint32_t first;
  std::uint32_t last;
};

// Places the largest block first, in the tightest gap, the lowest among equals. Like
// `greedy_by_size`, but time is a circle, and the first blocks have the offsets `given`, which must
// not overlap. Sizes are rounded up to `alignment`. O(n^2) steps.
Plan plan_periodic(std::span<Arc const> arcs, Size alignment, std::span<Size const> given = {});

// Plans the same blocks with other sizes, each as low as possible, keeping the vertical order of an
// earlier plan, whose `offsets` are given. Since both plans have the same vertical order,
// interpolating sizes and offsets between them in the same proportion gives a valid plan too.
// O(n log n) steps.
Plan plan_in_order(std::span<Arc const> arcs, std::span<Size const> offsets);

// The largest sum of sizes alive at one request. O(n) steps, plus one per request.
Size max_load(std::span<Arc const> arcs);

}  // namespace allocbench

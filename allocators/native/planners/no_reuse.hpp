// planners/no_reuse.hpp: places every block above the previous one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "planners/plan.hpp"

namespace allocbench {

// The baseline of memory planning, as in Caffe: blocks are stacked in the order given, even if
// their lifetimes do not overlap. O(n) time.
Plan plan_no_reuse(std::span<Lifetime const> lifetimes, Size alignment);

}  // namespace allocbench

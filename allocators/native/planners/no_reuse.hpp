// planners/no_reuse.hpp: every block has bytes of its own.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "planners/plan.hpp"

namespace allocbench {

// The baseline that memory planning is measured against (Caffe allocates so): blocks lie above one
// another in the order given, whether or not they are ever alive together. O(n) steps.
Plan plan_no_reuse(std::span<Lifetime const> lifetimes, Size alignment);

}  // namespace allocbench

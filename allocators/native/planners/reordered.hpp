// planners/reordered.hpp: places blocks in one of many orders, each as low as possible.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "planners/plan.hpp"

namespace allocbench {

// Each attempt uses another order: by the size of the block, its lifetime, or a product of both,
// largest first. In some orders, blocks that are alive where the load is highest come first, as in
// the planner GreedyByBreadth of TensorFlow Lite (Pisarchyk and Lee, "Efficient Memory Management
// for Deep Neural Net Inference", 2020). Later attempts perturb the keys at random. A block takes
// the lowest gap that is large enough between the placed blocks whose lifetimes overlap its own.
// O(n^2) time. Empty if `stop`, which is called periodically, returns true.
std::optional<Plan> plan_reordered(std::span<Lifetime const> lifetimes, Size alignment,
                                   std::uint64_t attempt, Stop const& stop);

}  // namespace allocbench

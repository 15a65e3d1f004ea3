// planners/from_peak.hpp: places blocks from the instant of the highest load outwards.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "planners/plan.hpp"

namespace allocbench {

// The blocks alive at the highest load are stacked without gaps. Those that begin later are then
// placed in the order of their begin, and those that end earlier in the reverse order of their end,
// as plan_in_execution_order places blocks (Gaps). So the plan wastes nothing where the load is
// highest, and the further away from there, the more the load usually leaves to be wasted.
// Each attempt stacks the blocks in another order, such as the last to end at the bottom.
// O(n log n) time. Throws SpecError unless the alignment is a power of two of at most 2 MiB.
// Empty if `stop`, which is called periodically, returns true.
std::optional<Plan> plan_from_peak(std::span<Lifetime const> lifetimes, Size alignment,
                                   std::uint64_t attempt, Stop const& stop);

constexpr std::uint64_t kPlainAttempts = 5;  // of plan_from_peak; later ones are random

}  // namespace allocbench

// planners/reordered.hpp: places blocks in one of many orders, each as low as possible.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "planners/plan.hpp"

namespace allocbench {

// For inputs with too many blocks for a search. Each attempt uses another order: the first four
// sort by bytes times lifetime, by bytes, and by two keys in between, largest first; later attempts
// perturb these keys at random. A block takes the lowest gap that is large enough between the
// placed blocks whose lifetimes overlap its own. O(n^2) time. Empty if `stop`, which is called
// periodically, returns true.
std::optional<Plan> plan_reordered(std::span<Lifetime const> lifetimes, Size alignment,
                                   std::uint64_t attempt, Stop const& stop);

}  // namespace allocbench

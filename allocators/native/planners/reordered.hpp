// planners/reordered.hpp: places blocks in one of many orders, each as low as possible.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "planners/plan.hpp"

namespace allocbench {

// For too many blocks to search: each attempt uses another order. The first four sort by bytes
// times lifetime, by bytes, and by two keys in between, largest first; later attempts perturb these
// at random. A block takes the lowest gap that holds it among the placed blocks whose lifetimes
// overlap its own. O(n^2) steps. Empty if `stop`, which is called now and then, returns true.
std::optional<Plan> plan_reordered(std::span<Lifetime const> lifetimes, Size alignment,
                                   std::uint64_t attempt, std::function<bool()> const& stop);

}  // namespace allocbench

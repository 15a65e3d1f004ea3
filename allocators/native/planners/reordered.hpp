// planners/reordered.hpp: blocks in one of many orders, each as low as it can lie.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "planners/plan.hpp"

namespace allocbench {

// Where there are too many blocks to be searched, many orders are tried: bytes times lifetime,
// bytes, and two between, each largest first; from the fifth attempt on, disturbed at random. A
// block takes the lowest gap that holds it among the blocks placed that are alive together with it.
// O(n^2) steps. Empty when `stop`, which is asked now and then, says so.
std::optional<Plan> plan_reordered(std::span<Lifetime const> lifetimes, Size alignment,
                                   std::uint64_t attempt, std::function<bool()> const& stop);

}  // namespace allocbench

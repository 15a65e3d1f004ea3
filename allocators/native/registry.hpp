// registry.hpp: strategies by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/allocator.hpp"

namespace allocbench {

std::vector<StrategyInfo const*> strategies();

// Throws SpecError for a name that does not exist, listing the valid ones.
StrategyInfo const& strategy(std::string_view name);

// Throws SpecError for a name or an option that does not exist, or a value out of range.
std::unique_ptr<Allocator> make(std::string_view name, Device& device,
                                std::map<std::string, std::string> options);

}  // namespace allocbench

// registry.hpp: strategies and wrappers by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/allocator.hpp"
#include "wrappers/wrapper.hpp"

namespace allocbench {

std::vector<StrategyInfo const*> strategies();

// Throws SpecError for a name that does not exist, listing the valid ones.
StrategyInfo const& strategy(std::string_view name);

// Why a strategy cannot work on a device; empty when it can.
std::string unavailable(StrategyInfo const& info, Device const& device);

std::vector<WrapperInfo const*> wrappers();

// A name and the options given to it.
struct Layer {
  std::string name;
  std::map<std::string, std::string> options;
};

// A strategy, the last of the layers, inside the wrappers before it, the outermost first. Throws
// SpecError for a name or an option that does not exist, or a value out of range, and Unavailable
// for a strategy that cannot work on the device.
std::unique_ptr<Allocator> make(std::vector<Layer> layers, Device& device);

}  // namespace allocbench

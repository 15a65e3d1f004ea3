// registry.hpp: strategies and wrappers by name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "wrappers/wrapper.hpp"

namespace allocbench {

// All strategies, sorted by name.
std::vector<StrategyInfo const*> strategies();

// Throws SpecError for an unknown name and lists the valid ones.
StrategyInfo const& strategy(std::string_view name);

// The reason why a strategy cannot run on a device; empty if it can.
std::string unavailable(StrategyInfo const& info, Device const& device);

// All wrappers, sorted by name.
std::vector<WrapperInfo const*> wrappers();

// A strategy or wrapper and its options.
struct Layer {
  std::string name;
  std::map<std::string, std::string> options;
};

// Creates the strategy in the last layer inside the wrappers before it, outermost first. Throws
// SpecError for an unknown name or option and for a value out of range, and Unavailable for a
// strategy that cannot run on the device.
std::unique_ptr<Allocator> make(std::vector<Layer> const& layers, Device& device);

}  // namespace allocbench

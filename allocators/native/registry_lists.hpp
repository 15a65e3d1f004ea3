// registry_lists.hpp: the strategies that the registry knows. Each list is a file of its own, so
// that several are compiled at once. To add a strategy, add its header and its name to one of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <memory>
#include <span>

#include "core/allocator.hpp"
#include "wrappers/pool_instances.hpp"

namespace allocbench {

struct Registered {
  StrategyInfo const* info;
  std::unique_ptr<Allocator> (*make)(Device&, Options const&);
};

std::span<Registered const> framework_strategies();
std::span<Registered const> virtual_memory_strategies();
std::span<Registered const> design_strategies();
Registered const& external_strategy();  // needs an option, so it is in no list

template <class S>
concept Strategy =
    std::derived_from<S, Allocator> && std::constructible_from<S, Device&, Options const&> &&
    std::same_as<decltype(S::strategy), StrategyInfo const>;

template <Strategy... S>
std::span<Registered const> list() {
  static constexpr Registered entries[] = {
      {&S::strategy, [](Device& device, Options const& options) -> std::unique_ptr<Allocator> {
         if constexpr (std::derived_from<S, ServesPools>)
           return std::make_unique<S>(device, options);
         else
           return std::make_unique<PoolInstances<S>>(device, options);
       }}...};
  return entries;
}

}  // namespace allocbench

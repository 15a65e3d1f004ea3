// registry_lists.hpp: lists of strategies for the registry. There are two, in registry.cpp and
// registry_frameworks.cpp, which are compiled at once.
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

// registry.cpp: THE list of strategies. A new one is a header and a line here.
// SPDX-License-Identifier: Apache-2.0
#include "registry.hpp"

#include <algorithm>
#include <concepts>
#include <span>
#include <utility>

#include "core/errors.hpp"
#include "strategies/arena.hpp"
#include "strategies/bfc.hpp"
#include "strategies/buddy.hpp"
#include "strategies/bump.hpp"
#include "strategies/caching.hpp"
#include "strategies/free_lists.hpp"
#include "strategies/naive.hpp"
#include "strategies/slab.hpp"
#include "strategies/tlsf.hpp"

namespace allocbench {
namespace {

template <class S>
concept Strategy =
    std::derived_from<S, Allocator> && std::constructible_from<S, Device&, Options const&> &&
    std::same_as<decltype(S::strategy), StrategyInfo const>;

struct Entry {
  StrategyInfo const* info;
  std::unique_ptr<Allocator> (*make)(Device&, Options const&);
};

template <Strategy... S>
std::span<Entry const> list() {
  static constexpr Entry entries[] = {
      {&S::strategy, [](Device& device, Options const& options) -> std::unique_ptr<Allocator> {
         return std::make_unique<S>(device, options);
       }}...};
  return entries;
}

std::span<Entry const> registered() {
  return list<Arena, Bfc, Buddy, Bump, Caching, FreeLists, Naive, Slab, Tlsf>();
}

Entry const& entry(std::string_view name) {
  for (Entry const& candidate : registered())
    if (candidate.info->name == name) return candidate;
  std::string valid;
  for (Entry const& candidate : registered())
    valid.append(valid.empty() ? "" : ", ").append(candidate.info->name);
  throw SpecError("no allocator is called '" + std::string(name) + "'; valid names: " + valid);
}

}  // namespace

std::vector<StrategyInfo const*> strategies() {
  std::vector<StrategyInfo const*> all;
  for (Entry const& candidate : registered()) all.push_back(candidate.info);
  std::ranges::sort(all, {}, [](auto const* info) { return info->name; });
  return all;
}

StrategyInfo const& strategy(std::string_view name) { return *entry(name).info; }

std::unique_ptr<Allocator> make(std::string_view name, Device& device,
                                std::map<std::string, std::string> options) {
  Entry const& found = entry(name);
  return found.make(device, Options(name, found.info->options, std::move(options)));
}

}  // namespace allocbench

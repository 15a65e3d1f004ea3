// registry.cpp: finds strategies and wrappers. To add one, add its header and its name here.
// SPDX-License-Identifier: Apache-2.0
#include "registry.hpp"

#include <algorithm>
#include <concepts>
#include <span>
#include <utility>

#include "core/device.hpp"
#include "core/errors.hpp"
#include "registry_lists.hpp"
#include "strategies/arena.hpp"
#include "strategies/buddy.hpp"
#include "strategies/bump.hpp"
#include "strategies/cuda_async.hpp"
#include "strategies/expandable.hpp"
#include "strategies/external.hpp"
#include "strategies/free_lists.hpp"
#include "strategies/naive.hpp"
#include "strategies/planned.hpp"
#include "strategies/slab.hpp"
#include "strategies/tlsf.hpp"
#include "strategies/xla_vmm.hpp"
#include "wrappers/binning.hpp"
#include "wrappers/check.hpp"
#include "wrappers/limit.hpp"
#include "wrappers/per_stream.hpp"
#include "wrappers/record.hpp"
#include "wrappers/retry.hpp"

namespace allocbench {
namespace {

std::span<Registered const> other_strategies() {
  return list<Arena, Buddy, Bump, CudaAsync, Expandable, FreeLists, Naive, Planned, Slab, Tlsf,
              XlaVmm>();
}

// It needs an option, so it is in no list.
Registered const& external_strategy() { return list<External>().front(); }

// All strategies, sorted by name.
std::span<Registered const> registered() {
  static std::vector<Registered> const all = [] {
    std::vector<Registered> entries;
    for (auto const list : {framework_strategies(), other_strategies()})
      entries.insert(entries.end(), list.begin(), list.end());
    std::ranges::sort(entries, {}, [](Registered const& entry) { return entry.info->name; });
    return entries;
  }();
  return all;
}

template <class W>
concept Wrapping = std::derived_from<W, Allocator> &&
                   std::constructible_from<W, Device&, Options const&, MakeInner const&> &&
                   std::same_as<decltype(W::wrapper), WrapperInfo const>;

struct WrapperEntry {
  WrapperInfo const* info;
  std::unique_ptr<Allocator> (*make)(Device&, Options const&, MakeInner const&);
};

template <Wrapping... W>
std::span<WrapperEntry const> list_wrappers() {
  static constexpr WrapperEntry entries[] = {
      {&W::wrapper,
       [](Device& device, Options const& options,
          MakeInner const& inner) -> std::unique_ptr<Allocator> {
         return std::make_unique<W>(device, options, inner);
       }}...};
  return entries;
}

std::span<WrapperEntry const> registered_wrappers() {
  return list_wrappers<Binning, Check, Limit, PerStream, Record>();
}

template <class E>
E const* find(std::span<E const> entries, std::string_view name) {
  auto const match =
      std::ranges::find(entries, name, [](E const& entry) { return entry.info->name; });
  return match == entries.end() ? nullptr : &*match;
}

template <class E>
std::string names_of(std::span<E const> entries) {
  std::string names;
  for (E const& entry : entries) names.append(names.empty() ? "" : ", ").append(entry.info->name);
  return names;
}

Registered const& entry(std::string_view name) {
  if (Registered const* match = find(registered(), name)) return *match;
  if (name == external_strategy().info->name) return external_strategy();
  std::string const quoted = std::string("'").append(name).append("'");
  if (find(registered_wrappers(), name) != nullptr)
    throw SpecError(quoted + " is a wrapper: its last option must be of=NAME; valid names: " +
                    names_of(registered()));
  throw SpecError("no allocator is called " + quoted + "; valid names: " + names_of(registered()) +
                  "; wrappers: " + names_of(registered_wrappers()));
}

WrapperEntry const& wrapper_entry(std::string_view name) {
  if (WrapperEntry const* match = find(registered_wrappers(), name)) return *match;
  throw SpecError(std::string("'").append(name) +
                  "' is not a wrapper, so it has no option of=; valid wrappers: " +
                  names_of(registered_wrappers()));
}

}  // namespace

std::vector<StrategyInfo const*> strategies() {
  std::vector<StrategyInfo const*> all;
  for (Registered const& candidate : registered()) all.push_back(candidate.info);
  return all;
}

std::vector<WrapperInfo const*> wrappers() {
  std::vector<WrapperInfo const*> all;
  for (WrapperEntry const& entry : registered_wrappers()) all.push_back(entry.info);
  return all;
}

StrategyInfo const& strategy(std::string_view name) { return *entry(name).info; }

std::string unavailable(StrategyInfo const& info, Device const& device) {
  if (!info.from_driver_pool) return {};
  auto const* pools = dynamic_cast<PoolDevice const*>(&device);
  if (pools != nullptr && pools->has_driver_pools()) return {};
  return "needs a device with stream-ordered memory pools, which this device does not have";
}

namespace {

std::unique_ptr<Allocator> build(std::vector<Layer> layers, Device& device) {
  require(!layers.empty(), "an allocator has at least one layer");
  auto [name, options] = std::move(layers.front());
  layers.erase(layers.begin());
  if (layers.empty()) {
    Registered const& registered = entry(name);
    Options const given(name, registered.info->options, std::move(options));
    if (auto const why = unavailable(*registered.info, device); !why.empty())
      throw Unavailable(name + " " + why);
    return registered.make(device, given);
  }
  WrapperEntry const& registered = wrapper_entry(name);
  return registered.make(device, Options(name, registered.info->options, std::move(options)),
                         [layers = std::move(layers), &device] { return build(layers, device); });
}

}  // namespace

std::unique_ptr<Allocator> make(std::vector<Layer> const& layers, Device& device) {
  auto allocator = build(layers, device);
  StrategyInfo const& info = allocator->info();
  if (info.retry_option.empty()) return allocator;
  Options const given(layers.back().name, info.options, layers.back().options);
  Retry::Seconds const longest(given.number(info.retry_option));
  if (longest <= Retry::Seconds(0)) return allocator;
  return std::make_unique<Retry>(device, longest, std::move(allocator));
}

}  // namespace allocbench

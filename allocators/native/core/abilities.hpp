// core/abilities.hpp: what only some allocators can do.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/allocator.hpp"
#include "core/errors.hpp"
#include "core/private_pools.hpp"

namespace allocbench {

// Has settings that a running program changes, as torch.cuda.memory._set_allocator_settings(conf)
// and set_per_process_memory_fraction(fraction) do.
class LiveSettings {
 public:
  // Both throw SpecError, and change nothing, for a value that is not valid.
  virtual void change_settings(std::string const& conf) = 0;
  virtual void change_memory_fraction(double fraction) = 0;

 protected:
  ~LiveSettings() = default;
};

// Can begin with memory that a program already held.
class TakesOver {
 public:
  // Takes over segments, in order of address, and the blocks allocated in them, as if they had been
  // obtained and allocated before; counts no device call. Returns false and changes nothing if this
  // allocator already holds memory, or if the strategy or the device cannot do it.
  virtual bool adopt(std::vector<HeldSegment> const& layout) = 0;

 protected:
  ~TakesOver() = default;
};

// Serves private pools. Every allocator that the registry makes does.
class ServesPools {
 public:
  virtual PrivatePools const& pools() const = 0;
  // Uses what another allocator, which encloses this one, knows about the pools.
  virtual void share_pools(std::shared_ptr<PrivatePools> const& pools) = 0;
  // The private pools 1, 2, ... of the requests to come.
  virtual void describe_pools(std::vector<PoolTraits> const& traits) = 0;
  virtual void pool_event(Op op, PoolId pool) = 0;
  // Gives the wholly free segments of a pool back to the device, if the pool is released. Throws as
  // Allocator::trim does, which does this for all released pools.
  virtual void trim_pool(PoolId pool) = 0;

 protected:
  ~ServesPools() = default;
};

// Throws SpecError if the settings of an allocator cannot change.
inline LiveSettings& live_settings(Allocator& allocator) {
  if (auto* const settings = dynamic_cast<LiveSettings*>(&allocator)) return *settings;
  throw SpecError(std::string(allocator.info().name) +
                  " has no settings that can change while a program runs; only caching has");
}

inline ServesPools& serving_pools(Allocator& allocator) {
  return dynamic_cast<ServesPools&>(allocator);
}

}  // namespace allocbench

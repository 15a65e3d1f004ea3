// core/abilities.hpp: what only some allocators can do: private pools, settings that change, memory
// that is held from the beginning.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/allocator.hpp"
#include "core/errors.hpp"
#include "core/trace.hpp"

namespace allocbench {

// What a program chose when it made a MemPool.
struct PoolTraits {
  bool use_on_oom = false;  // its free blocks may serve requests outside of it that would fail
  bool no_split = false;    // a request gets a whole segment
  std::uint64_t rank = 0;   // pools that lend are tried from the lowest rank on
};

// Which private pools of a program are in use, entered or captured into. A captured graph replays
// the addresses that it was captured with, so PyTorch serves a capture from a pool of its own,
// which keeps its segments as long as a graph uses it. torch.cuda.MemPool is such a pool too, which
// a program enters and leaves. Making a MemPool, entering it and capturing into a pool each count
// as a use of the pool, which a release ends.
class PrivatePools {
 public:
  // `traits` of the pools 1, 2, ...; the others have the defaults.
  void describe(std::vector<PoolTraits> const& traits) {
    traits_ = traits;
    lenders_.clear();
    for (PoolId pool = 1; pool <= traits.size(); ++pool)
      if (traits[pool - 1].use_on_oom) lenders_.push_back(pool);
    std::ranges::stable_sort(lenders_, {}, [&](PoolId pool) { return traits[pool - 1].rank; });
  }
  PoolTraits traits(PoolId pool) const {
    return pool == 0 || pool > traits_.size() ? PoolTraits{} : traits_[pool - 1];
  }

  void apply(Op op, PoolId pool) {
    Use& use = uses_[pool];
    switch (op) {
      case Op::kPoolCreate: add(use); break;
      case Op::kPoolEnter:
        add(use);
        ++entered_;
        break;
      case Op::kPoolLeave:
        if (entered_ > 0) --entered_;
        break;
      case Op::kCaptureBegin:
        add(use);
        ++entered_;
        ++captures_;
        ++use.captures;
        break;
      case Op::kCaptureEnd:
        if (use.captures == 0) break;
        --entered_;
        --captures_;
        --use.captures;
        break;
      case Op::kPoolRelease: drop(use); break;
      default: break;
    }
  }

  // Nothing uses the pool any more, so its segments may go back to the device. False for a pool
  // without an event: it was in use when the events began.
  bool released(PoolId pool) const {
    auto const found = uses_.find(pool);
    return found != uses_.end() && found->second.released;
  }
  bool any_released() const { return released_ > 0; }
  // Requests of some stream or thread are served from a pool now.
  bool entered() const { return entered_ > 0; }
  bool capturing() const { return captures_ > 0; }
  bool capturing(PoolId pool) const {
    auto const found = uses_.find(pool);
    return captures_ > 0 && found != uses_.end() && found->second.captures > 0;
  }
  bool in_use(PoolId pool) const {
    auto const found = uses_.find(pool);
    return found != uses_.end() && !found->second.released;
  }
  // The pools with `use_on_oom`, in the order of their ranks.
  std::vector<PoolId> const& lenders() const { return lenders_; }

 private:
  struct Use {
    std::size_t count = 0;
    std::size_t captures = 0;
    bool released = false;
  };

  void add(Use& use) {
    ++use.count;
    released_ -= std::exchange(use.released, false);
  }
  void drop(Use& use) {
    if (use.count > 0) --use.count;
    if (use.count == 0) released_ += !std::exchange(use.released, true);
  }

  std::vector<PoolTraits> traits_;
  std::vector<PoolId> lenders_;
  std::map<PoolId, Use> uses_;
  std::size_t released_ = 0;
  std::size_t entered_ = 0;
  std::size_t captures_ = 0;
};

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

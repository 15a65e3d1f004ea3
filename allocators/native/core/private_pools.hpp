// core/private_pools.hpp: which private pools of a program are in use, entered or captured into.
// SPDX-License-Identifier: Apache-2.0
//
// A captured graph replays the addresses that it was captured with, so PyTorch serves a capture
// from a pool of its own, which keeps its segments as long as a graph uses it. torch.cuda.MemPool
// is such a pool too, which a program enters and leaves. Making a MemPool, entering it and
// capturing into a pool each count as a use of the pool, which a release ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "core/trace.hpp"

namespace allocbench {

// What a program chose when it made a MemPool.
struct PoolTraits {
  bool use_on_oom = false;  // its free blocks may serve requests outside of it that would fail
  bool no_split = false;    // a request gets a whole segment
  std::uint64_t rank = 0;   // pools that lend are tried from the lowest rank on
};

class PrivatePools {
 public:
  // `traits` of the pools 1, 2, ...; the others have the defaults.
  void describe(std::vector<PoolTraits> const& traits) { traits_ = traits; }
  PoolTraits traits(PoolId pool) const {
    return pool == 0 || pool > traits_.size() ? PoolTraits{} : traits_[pool - 1];
  }

  void apply(Op op, PoolId pool) {
    Use& use = uses_[pool];
    switch (op) {
      case Op::kPoolCreate:
        add(use);
        break;
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
      case Op::kPoolRelease:
        drop(use);
        break;
      default:
        break;
    }
  }

  // Nothing uses the pool any more, so its segments may go back to the device. False for a pool
  // without an event: it was in use when the events began.
  bool released(PoolId pool) const {
    auto const found = uses_.find(pool);
    return found != uses_.end() && found->second.released;
  }
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
  std::size_t count() const { return traits_.size(); }

 private:
  struct Use {
    std::size_t count = 0;
    std::size_t captures = 0;
    bool released = false;
  };

  static void add(Use& use) {
    ++use.count;
    use.released = false;
  }
  static void drop(Use& use) {
    if (use.count > 0) --use.count;
    use.released = use.count == 0;
  }

  std::vector<PoolTraits> traits_;
  std::map<PoolId, Use> uses_;
  std::size_t entered_ = 0;
  std::size_t captures_ = 0;
};

}  // namespace allocbench

// strategies/caching/pools.cpp: private pools of PyTorch's CUDACachingAllocator.
// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <map>

#include "strategies/caching.hpp"

namespace allocbench {

void Caching::trim_pool(PoolId pool) {
  trim_by([&] {
    if (!pools_->released(pool)) return;
    blocks_.free_deferred();
    blocks_.free_waiting_of(pool);
    for (auto& [stream, pools] : blocks_.pools())
      if (pool_of(stream) == pool) release_free({&pools.small, &pools.large});
  });
}

// A free block of a MemPool made with use_on_oom, for a request outside of private pools.
Index Caching::lend(Stream stream, Size wanted) {
  if (pool_of(stream) != 0 || (settings_.expandable && !settings_.rules.lends_expandable))
    return kNone;
  std::multimap<std::uint64_t, PoolId> lenders;
  for (PoolId pool = 1; pool <= pools_->count(); ++pool)
    if (auto const traits = pools_->traits(pool); traits.use_on_oom && pools_->in_use(pool))
      lenders.emplace(traits.rank, pool);
  for (auto const& [rank, pool] : lenders) {
    PooledBlocks::StreamPools& pools = blocks_.of(in_pool(stream, pool));
    Index const block = find(wanted <= PytorchSettings::kSmall ? pools.small : pools.large, wanted);
    if (block != kNone) return block;
  }
  return kNone;
}

}  // namespace allocbench

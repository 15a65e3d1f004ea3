// core/allocator_pools.cpp: private pools, each with an instance of its own where the strategy does
// not know them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/allocator.hpp"
#include "core/errors.hpp"

namespace allocbench {

void Allocator::describe_pools(std::vector<PoolTraits> const& traits) {
  std::scoped_lock const guard(lock_);
  private_pools_.describe(traits);
  do_describe_pools(traits);
}

void Allocator::pool_event(Op op, PoolId pool) {
  std::scoped_lock const guard(lock_);
  private_pools_.apply(op, pool);
  do_pool_event(op, pool);
}

// Repeats a failed request if trimming the released pools returned memory.
Block Allocator::place_after_trim(Size requested, Stream stream) {
  Size const before = stats_.reserved.current;
  trim_released();
  if (stats_.reserved.current == before) return {};
  count_retry();
  return do_allocate(requested, stream);
}

// If the device refuses, the memory outside of the pool goes back to it, and the request is
// repeated.
Block Allocator::place_in_pool(Size requested, Stream stream) {
  std::unique_ptr<Allocator>& instance = instances_[pool_of(stream)];
  if (!instance) {
    require(make_instance_ != nullptr, "an allocator can make an instance for a private pool");
    instance = make_instance_();
    enclose(*instance);
  }
  Block const block = instance->try_allocate(requested, without_pool(stream));
  if (block.size != 0 || !returns_memory()) return block;
  Size const before = stats_.reserved.current;
  do_trim();
  trim_released();
  if (stats_.reserved.current == before) return block;
  count_retry();
  return instance->try_allocate(requested, without_pool(stream));
}

Block Allocator::take_back_from_pool(Address address, Stream stream) {
  auto const instance = instances_.find(pool_of(stream));
  return instance == instances_.end()
             ? Block{}
             : instance->second->try_deallocate(address, without_pool(stream));
}

void Allocator::trim_released() {
  for (auto const& [pool, instance] : instances_)
    if (private_pools_.released(pool)) instance->trim();
}

Size Allocator::largest_of_all() const {
  Size largest = do_largest_free();
  for (auto const& [pool, instance] : instances_)
    largest = std::max(largest, instance->largest_free());
  return largest;
}

}  // namespace allocbench

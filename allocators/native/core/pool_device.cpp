// core/pool_device.cpp: a device whose driver has memory pools of its own (cuMemPool).
// SPDX-License-Identifier: Apache-2.0
#include "core/pool_device.hpp"

namespace allocbench {

PoolDevice::PoolHandle PoolDevice::open_pool(Size keep, void const* owner) {
  std::scoped_lock const guard(mutex_);
  PoolHandle const pool = closed_ ? 0 : do_open_pool(keep, stats_.seconds);
  if (pool != 0) pools_.emplace(pool, OpenPool{owner});
  return pool;
}

Address PoolDevice::allocate_from(PoolHandle pool, Size size, Stream stream) {
  std::scoped_lock const guard(mutex_);
  if (closed_) return 0;
  auto const [owner, held] = pools_.at(pool);
  ++stats_.malloc_calls;
  double const before = stats_.seconds;
  Address const block = do_allocate_from(pool, size, stream, reserved_ - held, stats_.seconds);
  note(CallKind::kMalloc, block, size, before);
  if (block == 0) {
    ++stats_.refused_calls;
  } else {
    hold(block, size, owner, Kind::kBlock);
    blocks_[block] = {pool, stream};
  }
  recount(pool);
  return block;
}

void PoolDevice::free_to(PoolHandle pool, Address block, Stream stream) {
  std::scoped_lock const guard(mutex_);
  if (closed_) return;
  auto const segment = held(block, Kind::kBlock);
  blocks_.at(block).stream = stream;
  free_held(segment);
  recount(pool);
}

void PoolDevice::trim_pool(PoolHandle pool) {
  std::scoped_lock const guard(mutex_);
  if (closed_ || keeps_memory()) return;
  do_trim_pool(pool, stats_.seconds);
  recount(pool);
}

Size PoolDevice::held_by(PoolHandle pool) const {
  std::scoped_lock const guard(mutex_);
  auto const entry = pools_.find(pool);
  return entry == pools_.end() ? 0 : entry->second.reserved;
}

Size PoolDevice::recount_pools() {
  Size const before = reserved_;
  for (auto const& [pool, open] : pools_) recount(pool);
  return before - reserved_;
}

bool PoolDevice::do_free_block(Address block, Size size, double& seconds) {
  auto const entry = blocks_.find(block);
  if (!do_free_to(entry->second.pool, block, size, entry->second.stream, seconds)) return false;
  blocks_.erase(entry);
  return true;
}

std::size_t PoolDevice::do_blocks_freed(std::optional<void const*> owner) {
  for (auto pool = pools_.begin(); pool != pools_.end();) {
    auto const next = std::next(pool);
    if (!owner || pool->second.owner == *owner) close_pool(pool->first);
    pool = next;
  }
  return pools_.size();
}

// Updates the reserved bytes with the bytes that the pool holds now.
void PoolDevice::recount(PoolHandle pool) {
  Size& reserved = pools_.at(pool).reserved;
  reserved_ -= reserved;
  reserved = do_held_by(pool, reserved);
  reserved_ += reserved;
}

void PoolDevice::close_pool(PoolHandle pool) {
  if (keeps_memory() || !do_close_pool(pool, stats_.seconds)) {
    pools_.at(pool).owner = nullptr;
    return;
  }
  reserved_ -= pools_.at(pool).reserved;
  pools_.erase(pool);
}

}  // namespace allocbench

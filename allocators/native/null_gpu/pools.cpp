// null_gpu/pools.cpp: a model of the memory pools behind cudaMallocAsync.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/pools.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "null_gpu/machine.hpp"
#include "null_gpu/streams.hpp"

namespace allocbench::null_gpu {

DriverPools& DriverPools::get() {
  static DriverPools* pools = new DriverPools;
  return *pools;
}

Handle DriverPools::default_of(int device) {
  {
    std::lock_guard const lock(mutex_);
    if (auto const entry = defaults_.find(device); entry != defaults_.end()) return entry->second;
  }
  Handle const pool = create(device);
  std::lock_guard const lock(mutex_);
  return defaults_.try_emplace(device, pool).first->second;
}

Handle DriverPools::create(int device) {
  Handle const pool = Machine::get().new_handle();
  std::lock_guard const lock(mutex_);
  pools_[pool].device = device;
  return pool;
}

Status DriverPools::destroy(Handle handle) {
  std::lock_guard const lock(mutex_);
  free_ended();
  DriverPool* const pool = find(handle);
  if (pool == nullptr) return kInvalidValue;
  pool->destroyed = true;
  drop_if_unused(handle);
  return kSuccess;
}

Status DriverPools::allocate(Handle handle, Size size, Handle stream, Address* address) {
  constexpr Size kUnit = 512;
  std::uint64_t const capture = Streams::get().captured(stream).id;
  std::lock_guard const lock(mutex_);
  free_ended();
  DriverPool* const pool = find(handle);
  if (pool == nullptr) return kInvalidValue;
  auto& memory = Machine::get().memory(pool->device);
  Size const rounded = round_up(std::max<Size>(size, 1), kUnit);
  if (Size const more = pool->bytes.lacking(rounded)) {
    if (Status const status = memory.take(more)) return status;
    pool->bytes.grow(more);
  }
  if (Status const status = memory.reserve(rounded, address)) return status;
  pool->bytes.use(rounded);
  blocks_[*address] = {handle, rounded, capture};
  return kSuccess;
}

Status DriverPools::release(Address address) {
  std::lock_guard const lock(mutex_);
  auto const block = block_at(address);
  if (block == blocks_.end() || block->first != address) return kInvalidValue;
  free_block(block);
  return kSuccess;
}

Status DriverPools::release(Address address, Handle stream) {
  auto& streams = Streams::get();
  std::uint64_t const capture = streams.captured(stream).id;
  std::lock_guard const lock(mutex_);
  auto const block = block_at(address);
  if (block == blocks_.end() || block->first != address) return kInvalidValue;
  if (device_of(stream) != pools_.at(block->second.pool).device) return kInvalidHandle;
  if (capture != 0 && block->second.capture != capture) {
    streams.invalidate(stream);
    return kInvalidValue;
  }
  if (auto work = streams.put(stream); work.empty()) {
    free_block(block);
  } else {
    block->second.freed = std::move(work);
    ++pending_;
  }
  return kSuccess;
}

Status DriverPools::trim(Handle handle, Size keep) {
  std::lock_guard const lock(mutex_);
  free_ended();
  DriverPool* const pool = find(handle);
  if (pool == nullptr) return kInvalidValue;
  shrink(*pool, keep);
  return kSuccess;
}

void DriverPools::synchronize() {
  std::lock_guard const lock(mutex_);
  free_ended();
  for (auto& [handle, pool] : pools_) shrink(pool, pool.bytes.threshold);
}

Status DriverPools::attribute(Handle handle, int attribute, std::uint64_t* value) {
  std::lock_guard const lock(mutex_);
  free_ended();
  DriverPool const* const found = find(handle);
  if (found == nullptr) return kInvalidValue;
  PoolBytes const& pool = found->bytes;
  switch (attribute) {
    case kReleaseThreshold:
      *value = pool.threshold;
      return kSuccess;
    case kReservedNow:
      *value = pool.reserved;
      return kSuccess;
    case kReservedHigh:
      *value = pool.reserved_high;
      return kSuccess;
    case kUsedNow:
      *value = pool.used;
      return kSuccess;
    case kUsedHigh:
      *value = pool.used_high;
      return kSuccess;
    default:
      *reinterpret_cast<int*>(value) = 1;  // the reuse policies are enabled
      return kSuccess;
  }
}

Status DriverPools::set_attribute(Handle handle, int attribute, std::uint64_t value) {
  std::lock_guard const lock(mutex_);
  DriverPool* const found = find(handle);
  if (found == nullptr) return kInvalidValue;
  PoolBytes& pool = found->bytes;
  if (attribute == kReleaseThreshold) pool.threshold = value;
  if (attribute == kReservedHigh)
    pool.reserved_high = pool.reserved;  // CUDA allows only 0: a reset
  if (attribute == kUsedHigh) pool.used_high = pool.used;
  return kSuccess;
}

Status DriverPools::set_access(Handle handle, AccessDescription const* access, std::size_t count) {
  std::lock_guard const lock(mutex_);
  DriverPool* const pool = find(handle);
  if (pool == nullptr) return kInvalidValue;
  for (std::size_t index = 0; index < count; ++index) {
    int const device = access[index].location.id;
    if (access[index].flags == kNoAccess) {
      pool->peers.erase(device);
    } else {
      pool->peers.insert(device);
    }
  }
  return kSuccess;
}

Status DriverPools::allowed(Handle handle, int device, bool* allowed) {
  std::lock_guard const lock(mutex_);
  DriverPool const* const pool = find(handle);
  if (pool == nullptr) return kInvalidValue;
  *allowed = device == pool->device || pool->peers.contains(device);
  return kSuccess;
}

Range DriverPools::range_of(Address address) {
  std::lock_guard const lock(mutex_);
  auto const block = block_at(address);
  return block == blocks_.end() ? Range{} : Range{block->first, block->second.size};
}

Handle DriverPools::pool_of(Address address) {
  std::lock_guard const lock(mutex_);
  auto const block = block_at(address);
  return block == blocks_.end() ? nullptr : block->second.pool;
}

DriverPools::Counts DriverPools::counts() {
  std::lock_guard const lock(mutex_);
  Counts counts{pools_.size() - defaults_.size(), 0, 0};
  for (auto const& [address, block] : blocks_) counts.blocks += !block.freed;
  for (auto const& [handle, pool] : pools_) counts.reserved += pool.bytes.reserved;
  return counts;
}

DriverPools::DriverPool* DriverPools::find(Handle handle) {
  auto const entry = pools_.find(handle);
  return entry == pools_.end() || entry->second.destroyed ? nullptr : &entry->second;
}

// The block that contains an address and is not freed.
DriverPools::Blocks::iterator DriverPools::block_at(Address address) {
  auto block = blocks_.upper_bound(address);
  if (block == blocks_.begin()) return blocks_.end();
  --block;
  bool const within = address < block->first + block->second.size;
  return within && !block->second.freed ? block : blocks_.end();
}

DriverPools::Blocks::iterator DriverPools::free_block(Blocks::iterator block) {
  Handle const handle = block->second.pool;
  DriverPool& pool = pools_.at(handle);
  pool.bytes.used -= block->second.size;
  Machine::get().memory(pool.device).unreserve(block->first);
  auto const next = blocks_.erase(block);
  drop_if_unused(handle);
  return next;
}

// Frees the blocks whose frees the streams have reached.
void DriverPools::free_ended() {
  for (auto block = blocks_.begin(); pending_ != 0 && block != blocks_.end();) {
    bool const ended = block->second.freed && Streams::get().ended(*block->second.freed);
    pending_ -= ended;
    block = ended ? free_block(block) : std::next(block);
  }
}

void DriverPools::drop_if_unused(Handle handle) {
  DriverPool& pool = pools_.at(handle);
  if (!pool.destroyed || pool.bytes.used != 0) return;
  shrink(pool, 0);
  pools_.erase(handle);
}

void DriverPools::shrink(DriverPool& pool, Size keep) {
  if (Size const freed = pool.bytes.shrink(keep)) Machine::get().memory(pool.device).give(freed);
}

}  // namespace allocbench::null_gpu

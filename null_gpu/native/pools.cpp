// null_gpu/pools.cpp: a model of the memory pools behind cudaMallocAsync.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/pools.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/streams.hpp"

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

Handle DriverPools::create(int device, Size most) {
  Handle const pool = Machine::get().new_handle();
  std::lock_guard const lock(mutex_);
  pools_[pool].device = device;
  pools_[pool].most = round_up(most, kPoolUnit);
  return pool;
}

Status DriverPools::destroy(Handle handle) {
  std::lock_guard const lock(mutex_);
  DriverPool* const pool = find(handle);
  if (pool == nullptr) return kInvalidValue;
  auto const is_default = [&](auto const& entry) { return entry.second == handle; };
  if (std::ranges::any_of(defaults_, is_default)) return kInvalidValue;
  pool->destroyed = true;
  drop_if_unused(handle);
  return kSuccess;
}

Status DriverPools::allocate(Handle handle, Size size, Handle stream, Address* address) {
  std::uint64_t const capture = Streams::get().captured(stream).id;
  std::lock_guard const lock(mutex_);
  DriverPool* const pool = find(handle);
  if (pool == nullptr) return kInvalidValue;
  *address = 0;
  if (size == 0) return kSuccess;
  if (!open(*pool, size)) return kOutOfMemory;
  auto& memory = Machine::get().memory(pool->device);
  auto const take = [&] {
    Size const more = pool->space->reserved() + kPoolUnit;
    if (pool->most != 0 && more > pool->most) return false;
    return memory.take(kPoolUnit) == kSuccess;
  };
  Size offset = 0;
  if (!pool->space->reuse(size, reinterpret_cast<Address>(stream), &offset)) {
    settle(*pool, reinterpret_cast<Address>(stream));
    bool const placed = pool->space->allocate(size, take, &offset);
    pool->reserved_high = std::max(pool->reserved_high, pool->space->reserved());
    if (!placed) return kOutOfMemory;
  }
  *address = pool->begin + offset;
  pool->used += size;
  pool->used_high = std::max(pool->used_high, pool->used);
  blocks_[*address] = {handle, size, capture};
  return kSuccess;
}

Status DriverPools::release(Address address) {
  std::lock_guard const lock(mutex_);
  auto const block = block_at(address);
  if (block == blocks_.end() || block->first != address) return kInvalidValue;
  free_block(block, 0, {});
  return kSuccess;
}

Status DriverPools::release(Address address, Handle stream) {
  auto& streams = Streams::get();
  std::uint64_t const capture = streams.captured(stream).id;
  std::lock_guard const lock(mutex_);
  auto const block = block_at(address);
  if (block == blocks_.end() || block->first != address) return kInvalidValue;
  if (device_of(stream) != pools_.at(block->second.pool).device) return kInvalidHandle;
  if (capture != 0 && block->second.capture != capture) return kInvalidValue;
  free_block(block, reinterpret_cast<Address>(stream), streams.put(stream));
  return kSuccess;
}

Status DriverPools::trim(Handle handle, Size keep) {
  std::lock_guard const lock(mutex_);
  DriverPool* const pool = find(handle);
  if (pool == nullptr) return kInvalidValue;
  shrink(*pool, keep < ~Size{0} - kPoolUnit ? round_up(keep, kPoolUnit) : keep);
  return kSuccess;
}

void DriverPools::synchronize() {
  std::lock_guard const lock(mutex_);
  for (auto& [handle, pool] : pools_) {
    settle(pool);
    shrink(pool, pool.threshold);
  }
}

void DriverPools::synchronize(Handle stream) {
  std::lock_guard const lock(mutex_);
  auto const number = reinterpret_cast<Address>(stream);
  for (auto& [handle, pool] : pools_) {
    auto const own = [&](Freed const& freed) { return freed.stream == number; };
    if (std::erase_if(pool.freed, own) == 0) continue;
    pool.space->settle(number);
    shrink(pool, pool.threshold);
  }
}

bool DriverPools::give_all(int device) {
  std::lock_guard const lock(mutex_);
  bool gave = false;
  for (auto& [handle, pool] : pools_) {
    if (pool.device != device || !pool.space) continue;
    Size const before = pool.space->reserved();
    settle(pool);
    shrink(pool, 0);
    gave |= pool.space->reserved() < before;
  }
  return gave;
}

Status DriverPools::attribute(Handle handle, int attribute, std::uint64_t* value) {
  std::lock_guard const lock(mutex_);
  DriverPool const* const pool = find(handle);
  if (pool == nullptr) return kInvalidValue;
  switch (attribute) {
    case kReleaseThreshold:
      *value = pool->threshold;
      return kSuccess;
    case kReservedNow:
      *value = pool->space ? pool->space->reserved() : 0;
      return kSuccess;
    case kReservedHigh:
      *value = pool->reserved_high;
      return kSuccess;
    case kUsedNow:
      *value = pool->used;
      return kSuccess;
    case kUsedHigh:
      *value = pool->used_high;
      return kSuccess;
    default:
      if (attribute < kReuseFollowsEvents || attribute > kReuseAddsDependencies)
        return kInvalidValue;
      *reinterpret_cast<int*>(value) = pool->reuse[attribute - kReuseFollowsEvents];
      return kSuccess;
  }
}

Status DriverPools::set_attribute(Handle handle, int attribute, std::uint64_t value) {
  std::lock_guard const lock(mutex_);
  DriverPool* const pool = find(handle);
  if (pool == nullptr) return kInvalidValue;
  switch (attribute) {
    case kReleaseThreshold:
      pool->threshold = value;
      return kSuccess;
    case kReservedHigh:
      if (value != 0) return kInvalidValue;
      pool->reserved_high = pool->space ? pool->space->reserved() : 0;
      return kSuccess;
    case kUsedHigh:
      if (value != 0) return kInvalidValue;
      pool->used_high = pool->used;
      return kSuccess;
    default:
      if (attribute < kReuseFollowsEvents || attribute > kReuseAddsDependencies)
        return kInvalidValue;
      pool->reuse[attribute - kReuseFollowsEvents] = value != 0;
      return kSuccess;
  }
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

std::optional<Range> DriverPools::range_of(Address address) {
  std::lock_guard const lock(mutex_);
  if (auto const block = block_at(address); block != blocks_.end())
    return Range{block->first, block->second.size};
  for (auto const& [handle, pool] : pools_) {
    if (pool.begin != 0 && address >= pool.begin && address < pool.begin + pool.addresses)
      return Range{};
  }
  return std::nullopt;
}

Handle DriverPools::pool_of(Address address) {
  std::lock_guard const lock(mutex_);
  auto const block = block_at(address);
  return block == blocks_.end() ? nullptr : block->second.pool;
}

DriverPools::Counts DriverPools::counts() {
  std::lock_guard const lock(mutex_);
  Counts counts{pools_.size() - defaults_.size(), 0, 0};
  counts.blocks = blocks_.size();
  for (auto const& [handle, pool] : pools_) {
    if (pool.space) counts.reserved += pool.space->reserved();
  }
  return counts;
}

DriverPools::DriverPool* DriverPools::find(Handle handle) {
  auto const entry = pools_.find(handle);
  return entry == pools_.end() || entry->second.destroyed ? nullptr : &entry->second;
}

DriverPools::Blocks::iterator DriverPools::block_at(Address address) {
  auto block = blocks_.upper_bound(address);
  if (block == blocks_.begin()) return blocks_.end();
  --block;
  return address < block->first + block->second.size ? block : blocks_.end();
}

// Gives a pool addresses before its first block: more than the card has bytes, because a block may
// find no range of free addresses that is large enough although enough memory is free.
bool DriverPools::open(DriverPool& pool, Size size) {
  if (pool.space) return true;
  auto& memory = Machine::get().memory(pool.device);
  Size addresses = round_up(4 * std::max(Machine::get().settings().memory, size), kPoolUnit);
  for (; addresses >= round_up(size, kPoolUnit); addresses = round_up(addresses / 2, kPoolUnit)) {
    if (memory.reserve(addresses, &pool.begin) == kSuccess) {
      pool.addresses = addresses;
      pool.space = std::make_unique<PoolSpace>(addresses);
      return true;
    }
    if (addresses == kPoolUnit) break;
  }
  pool.begin = 0;
  return false;
}

void DriverPools::free_block(Blocks::iterator block, std::uint64_t stream, HeldStreams::Work work) {
  Handle const handle = block->second.pool;
  DriverPool& pool = pools_.at(handle);
  pool.used -= block->second.size;
  pool.space->release(block->first - pool.begin, block->second.size, stream);
  auto const own = [&](Freed const& freed) { return freed.stream == stream; };
  if (auto const freed = std::ranges::find_if(pool.freed, own); freed != pool.freed.end()) {
    freed->work = std::move(work);  // it is after all earlier work of the stream
  } else {
    pool.freed.push_back({stream, std::move(work)});
  }
  blocks_.erase(block);
  drop_if_unused(handle);
}

// What was freed on streams that have ended their work may be used by all. For a request on
// `stream`, that is only so if the pool reuses what ended by itself; its own stream always counts.
void DriverPools::settle(DriverPool& pool, std::optional<std::uint64_t> stream) {
  bool const all = !stream || pool.reuse[kReuseOfEnded - kReuseFollowsEvents] != 0;
  std::erase_if(pool.freed, [&](Freed const& freed) {
    if (!all && freed.stream != *stream) return false;
    if (!Streams::get().ended(freed.work)) return false;
    pool.space->settle(freed.stream);
    return true;
  });
}

void DriverPools::drop_if_unused(Handle handle) {
  DriverPool& pool = pools_.at(handle);
  if (!pool.destroyed || pool.used != 0) return;
  if (pool.space) {
    auto& memory = Machine::get().memory(pool.device);
    memory.give(pool.space->reserved());
    memory.unreserve(pool.begin);
  }
  pools_.erase(handle);
}

void DriverPools::shrink(DriverPool& pool, Size most) {
  if (!pool.space) return;
  if (Size const freed = pool.space->shrink(most)) Machine::get().memory(pool.device).give(freed);
}

Status allocate_memory(int device, Size size, Address* address) {
  auto& memory = Machine::get().memory(device);
  Status const status = memory.allocate(size, address);
  bool const again = status == kOutOfMemory && DriverPools::get().give_all(device);
  return again ? memory.allocate(size, address) : status;
}

}  // namespace allocbench::null_gpu

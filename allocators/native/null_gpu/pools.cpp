// null_gpu/pools.cpp: a model of the memory pools behind cudaMallocAsync.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/pools.hpp"

#include <algorithm>

#include "null_gpu/machine.hpp"

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

void DriverPools::destroy(Handle pool) {
  std::lock_guard const lock(mutex_);
  auto const entry = pools_.find(pool);
  if (entry == pools_.end()) return;
  shrink(entry->second, 0);
  pools_.erase(entry);
}

Status DriverPools::allocate(Handle handle, Size size, Address* address) {
  constexpr Size kUnit = 512;
  std::lock_guard const lock(mutex_);
  auto const entry = pools_.find(handle);
  if (entry == pools_.end()) return kInvalidValue;
  DriverPool& pool = entry->second;
  auto& memory = Machine::get().memory(pool.device);
  Size const rounded = round_up(std::max<Size>(size, 1), kUnit);
  if (Size const more = pool.bytes.lacking(rounded)) {
    if (Status const status = memory.take(more)) return status;
    pool.bytes.grow(more);
  }
  if (Status const status = memory.reserve(rounded, address)) return status;
  pool.bytes.use(rounded);
  blocks_[*address] = {handle, rounded};
  return kSuccess;
}

Status DriverPools::release(Address address) {
  std::lock_guard const lock(mutex_);
  auto const entry = blocks_.find(address);
  if (entry == blocks_.end()) return kInvalidValue;
  DriverPool& pool = pools_[entry->second.pool];
  pool.bytes.used -= entry->second.size;
  Machine::get().memory(pool.device).unreserve(address);
  blocks_.erase(entry);
  return kSuccess;
}

void DriverPools::trim(Handle handle, Size keep) {
  std::lock_guard const lock(mutex_);
  if (auto const entry = pools_.find(handle); entry != pools_.end()) shrink(entry->second, keep);
}

void DriverPools::synchronize() {
  std::lock_guard const lock(mutex_);
  for (auto& [handle, pool] : pools_) shrink(pool, pool.bytes.threshold);
}

Status DriverPools::attribute(Handle handle, int attribute, std::uint64_t* value) {
  std::lock_guard const lock(mutex_);
  auto const entry = pools_.find(handle);
  if (entry == pools_.end()) return kInvalidValue;
  PoolBytes const& pool = entry->second.bytes;
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
  auto const entry = pools_.find(handle);
  if (entry == pools_.end()) return kInvalidValue;
  PoolBytes& pool = entry->second.bytes;
  if (attribute == kReleaseThreshold) pool.threshold = value;
  if (attribute == kReservedHigh)
    pool.reserved_high = pool.reserved;  // CUDA allows only 0: a reset
  if (attribute == kUsedHigh) pool.used_high = pool.used;
  return kSuccess;
}

Range DriverPools::range_of(Address address) {
  std::lock_guard const lock(mutex_);
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return {};
  auto const& [begin, block] = *std::prev(after);
  return address < begin + block.size ? Range{begin, block.size} : Range{};
}

void DriverPools::shrink(DriverPool& pool, Size keep) {
  if (Size const freed = pool.bytes.shrink(keep)) Machine::get().memory(pool.device).give(freed);
}

}  // namespace allocbench::null_gpu

// native/pools.cpp: the memory pools behind cudaMallocAsync, by their handles, and CUDA's calls for
// them.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/pools.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "null_gpu/native/contexts.hpp"
#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/streams.hpp"

namespace allocbench::null_gpu {
namespace {

Stream number_of(Handle stream) { return reinterpret_cast<Stream>(stream); }

}  // namespace

Handle PoolTable::default_of(int device) {
  std::lock_guard const lock(mutex_);
  auto const [entry, is_new] = defaults_.try_emplace(device);
  if (is_new) {
    entry->second = Machine::get().new_handle();
    pools_.try_emplace(entry->second, device, DriverPool(0));
  }
  return entry->second;
}

Handle PoolTable::create(int device, Size most) {
  Handle const pool = Machine::get().new_handle();
  std::lock_guard const lock(mutex_);
  pools_.try_emplace(pool, device, DriverPool(most));
  return pool;
}

Status PoolTable::destroy(Handle handle) {
  std::lock_guard const lock(mutex_);
  Entry* const entry = find(handle);
  if (entry == nullptr) return kInvalidValue;
  auto const is_default = [&](auto const& pool) { return pool.second == handle; };
  if (std::ranges::any_of(defaults_, is_default)) return kInvalidValue;
  entry->destroyed = true;
  drop_if_unused(handle);
  return kSuccess;
}

Status PoolTable::allocate(Handle handle, Size size, Handle stream, Address* address) {
  std::uint64_t const capture = Streams::get().captured(stream).id;
  std::lock_guard const lock(mutex_);
  Entry* const entry = find(handle);
  if (entry == nullptr) return kInvalidValue;
  *address = 0;
  if (size == 0) return kSuccess;
  if (!open(*entry, size)) return kOutOfMemory;
  auto& memory = Machine::get().memory(entry->device);
  *address = entry->pool.allocate(size, number_of(stream), ended(*entry, number_of(stream)),
                                  [&] { return memory.take(DriverPool::kPage) == kSuccess; });
  if (*address == 0) return kOutOfMemory;
  blocks_[*address] = {handle, size, capture};
  return kSuccess;
}

Status PoolTable::release(Address address) {
  std::lock_guard const lock(mutex_);
  auto const block = block_at(address);
  if (block == blocks_.end() || block->first != address) return kInvalidValue;
  free_block(block, nullptr, {});
  return kSuccess;
}

Status PoolTable::release(Address address, Handle stream) {
  auto& streams = Streams::get();
  std::uint64_t const capture = streams.captured(stream).id;
  std::lock_guard const lock(mutex_);
  auto const block = block_at(address);
  if (block == blocks_.end() || block->first != address) return kInvalidValue;
  if (device_of(stream) != pools_.at(block->second.pool).device) return kInvalidHandle;
  if (capture != 0 && block->second.capture != capture) return kInvalidValue;
  free_block(block, stream, streams.put(stream));
  return kSuccess;
}

Status PoolTable::trim(Handle handle, Size keep) {
  std::lock_guard const lock(mutex_);
  Entry* const entry = find(handle);
  if (entry == nullptr) return kInvalidValue;
  constexpr Size kPage = DriverPool::kPage;
  shrink(*entry, keep < ~Size{0} - kPage ? round_up(keep, kPage) : keep);
  return kSuccess;
}

void PoolTable::synchronize() {
  std::lock_guard const lock(mutex_);
  for (auto& [handle, entry] : pools_) {
    entry.pool.settle(ended(entry));
    shrink(entry, entry.threshold);
  }
}

void PoolTable::synchronize(Handle stream) {
  std::lock_guard const lock(mutex_);
  for (auto& [handle, entry] : pools_) {
    if (entry.freed.erase(number_of(stream)) == 0) continue;
    entry.pool.settle([&](Stream freed) { return freed == number_of(stream); });
    shrink(entry, entry.threshold);
  }
}

bool PoolTable::give_all(int device) {
  std::lock_guard const lock(mutex_);
  Size gave = 0;
  for (auto& [handle, entry] : pools_) {
    if (entry.device != device) continue;
    entry.pool.settle(ended(entry));
    gave += shrink(entry, 0);
  }
  return gave != 0;
}

Status PoolTable::attribute(Handle handle, int attribute, std::uint64_t* value) {
  std::lock_guard const lock(mutex_);
  Entry const* const entry = find(handle);
  if (entry == nullptr) return kInvalidValue;
  switch (attribute) {
    case kReleaseThreshold: *value = entry->threshold; return kSuccess;
    case kReservedNow: *value = entry->pool.reserved().current; return kSuccess;
    case kReservedHigh: *value = entry->pool.reserved().peak; return kSuccess;
    case kUsedNow: *value = entry->pool.used().current; return kSuccess;
    case kUsedHigh: *value = entry->pool.used().peak; return kSuccess;
    default:
      if (attribute < kReuseFollowsEvents || attribute > kReuseAddsDependencies)
        return kInvalidValue;
      *reinterpret_cast<int*>(value) = entry->reuse[attribute - kReuseFollowsEvents];
      return kSuccess;
  }
}

Status PoolTable::set_attribute(Handle handle, int attribute, void const* given) {
  std::lock_guard const lock(mutex_);
  std::uint64_t const value = attribute >= kReleaseThreshold
                                  ? *static_cast<std::uint64_t const*>(given)
                                  : static_cast<std::uint64_t>(*static_cast<int const*>(given));
  Entry* const entry = find(handle);
  if (entry == nullptr) return kInvalidValue;
  switch (attribute) {
    case kReleaseThreshold: entry->threshold = value; return kSuccess;
    case kReservedHigh:
      if (value != 0) return kInvalidValue;
      entry->pool.reset_peak_reserved();
      return kSuccess;
    case kUsedHigh:
      if (value != 0) return kInvalidValue;
      entry->pool.reset_peak_used();
      return kSuccess;
    default:
      if (attribute < kReuseFollowsEvents || attribute > kReuseAddsDependencies)
        return kInvalidValue;
      entry->reuse[attribute - kReuseFollowsEvents] = value != 0;
      return kSuccess;
  }
}

Status PoolTable::set_access(Handle handle, AccessDescription const* access, std::size_t count) {
  std::lock_guard const lock(mutex_);
  Entry* const entry = find(handle);
  if (entry == nullptr) return kInvalidValue;
  for (std::size_t index = 0; index < count; ++index) {
    int const device = access[index].location.id;
    if (access[index].flags == kNoAccess)
      entry->peers.erase(device);
    else
      entry->peers.insert(device);
  }
  return kSuccess;
}

Status PoolTable::allowed(Handle handle, int device, bool* allowed) {
  std::lock_guard const lock(mutex_);
  Entry const* const entry = find(handle);
  if (entry == nullptr) return kInvalidValue;
  *allowed = device == entry->device || entry->peers.contains(device);
  return kSuccess;
}

std::optional<Range> PoolTable::range_of(Address address) {
  std::lock_guard const lock(mutex_);
  if (auto const block = block_at(address); block != blocks_.end())
    return Range{block->first, block->second.size};
  for (auto const& [handle, entry] : pools_)
    if (entry.pool.contains(address)) return Range{};
  return std::nullopt;
}

Handle PoolTable::pool_of(Address address) {
  std::lock_guard const lock(mutex_);
  auto const block = block_at(address);
  return block == blocks_.end() ? nullptr : block->second.pool;
}

PoolTable::Counts PoolTable::counts() {
  std::lock_guard const lock(mutex_);
  return {pools_.size() - defaults_.size(), blocks_.size()};
}

PoolTable::Entry* PoolTable::find(Handle handle) {
  auto const entry = pools_.find(handle);
  return entry == pools_.end() || entry->second.destroyed ? nullptr : &entry->second;
}

PoolTable::Blocks::iterator PoolTable::block_at(Address address) {
  return around(blocks_, address);
}

// Gives a pool addresses before its first block: more than the card has bytes, because a block may
// find no range of free addresses that is large enough although enough memory is free.
bool PoolTable::open(Entry& entry, Size size) {
  if (entry.pool.opened()) return true;
  constexpr Size kPage = DriverPool::kPage;
  auto& memory = Machine::get().memory(entry.device);
  Size addresses = round_up(4 * std::max(Machine::get().settings().memory, size), kPage);
  for (; addresses >= round_up(size, kPage); addresses = round_up(addresses / 2, kPage)) {
    Address begin = 0;
    if (memory.reserve(addresses, &begin) == kSuccess) {
      entry.pool.open(begin, addresses);
      return true;
    }
    if (addresses == kPage) break;
  }
  return false;
}

void PoolTable::free_block(Blocks::iterator block, Handle stream, HeldStreams::Work work) {
  auto const [address, freed] = *block;
  released_outside(address);
  Entry& entry = pools_.at(freed.pool);
  entry.pool.release(address, freed.size, number_of(stream));
  entry.freed[number_of(stream)] = std::move(work);  // it is after all earlier work of the stream
  blocks_.erase(block);
  drop_if_unused(freed.pool);
}

// Forgets the work of streams that have ended it. What they freed may be used by all. For a request
// on the stream `only`, that is only so if the pool reuses what ended by itself; its own stream
// always counts.
DriverPool::Ended PoolTable::ended(Entry& entry, std::optional<Stream> only) {
  bool const all = !only || entry.reuse[kReuseOfEnded - kReuseFollowsEvents] != 0;
  return [&entry, all, only](Stream stream) {
    if (!all && stream != *only) return false;
    auto const freed = entry.freed.find(stream);
    if (!Streams::get().ended(freed->second)) return false;
    entry.freed.erase(freed);
    return true;
  };
}

void PoolTable::drop_if_unused(Handle handle) {
  Entry& entry = pools_.at(handle);
  if (!entry.destroyed || entry.pool.used().current != 0) return;
  if (entry.pool.opened()) {
    auto& memory = Machine::get().memory(entry.device);
    memory.give(entry.pool.reserved().current);
    memory.unreserve(entry.pool.begin());
  }
  pools_.erase(handle);
}

Size PoolTable::shrink(Entry& entry, Size most) {
  Size const freed = entry.pool.shrink(most);
  if (freed != 0) Machine::get().memory(entry.device).give(freed);
  return freed;
}

Status allocate_memory(int device, Size size, Address* address) {
  auto& memory = Machine::get().memory(device);
  Status const status = memory.allocate(size, address);
  bool const again = status == kOutOfMemory && PoolTable::get().give_all(device);
  return again ? memory.allocate(size, address) : status;
}

}  // namespace allocbench::null_gpu

using namespace allocbench::null_gpu;

namespace {

Status allocate_async(Handle pool, Size size, Handle stream, Address* address) {
  *address = 0;
  Status const status = PoolTable::get().allocate(pool, size, stream, address);
  if (*address != 0)
    allocated_outside(Machine::get().device_of(reinterpret_cast<void*>(*address)), *address, size);
  return status;
}

}  // namespace

// -- both

NULL_GPU_PAIR(cudaMemPoolDestroy, cuMemPoolDestroy, entered_context, (Handle pool),
              PoolTable::get().destroy(pool))
NULL_GPU_PAIR(cudaMemPoolTrimTo, cuMemPoolTrimTo, entered_context, (Handle pool, Size keep),
              PoolTable::get().trim(pool, keep))
NULL_GPU_PAIR(cudaMemPoolGetAttribute, cuMemPoolGetAttribute, entered_context,
              (Handle pool, int attribute, std::uint64_t* value),
              PoolTable::get().attribute(pool, attribute, value))
NULL_GPU_PAIR(cudaMemPoolSetAttribute, cuMemPoolSetAttribute, entered_context,
              (Handle pool, int attribute, void const* value),
              PoolTable::get().set_attribute(pool, attribute, value))
NULL_GPU_PAIR(cudaMemPoolSetAccess, cuMemPoolSetAccess, entered_context,
              (Handle pool, AccessDescription const* access, Size count),
              PoolTable::get().set_access(pool, access, count))

// -- the runtime

NULL_GPU_API int null_cudaMallocFromPoolAsync(Address* address, Size size, Handle pool,
                                              Handle stream) {
  Status const status = entered_runtime("cudaMallocFromPoolAsync");
  return failed(status ?: allocate_async(pool, size, stream, address));
}

NULL_GPU_API int null_cudaMallocAsync(Address* address, Size size, Handle stream) {
  if (Status const status = entered_runtime("cudaMallocAsync")) return failed(status);
  Handle const pool = PoolTable::get().default_of(current_device());
  return failed(allocate_async(pool, size, stream, address));
}

NULL_GPU_API int null_cudaFreeAsync(Address address, Handle stream) {
  if (Status const status = entered_runtime("cudaFreeAsync")) return failed(status);
  return address == 0 ? kSuccess : failed(PoolTable::get().release(address, stream));
}

NULL_GPU_API int null_cudaDeviceGetDefaultMemPool(Handle* pool, int device) {
  if (!Machine::get().has(device)) return failed(kInvalidDevice);
  *pool = PoolTable::get().default_of(device);
  return kSuccess;
}

NULL_GPU_API int null_cudaMemPoolCreate(Handle* pool, PoolProperties const* properties) {
  if (Status const status = entered_runtime("cudaMemPoolCreate")) return failed(status);
  *pool = PoolTable::get().create(properties->location.id, properties->most);
  return kSuccess;
}

// -- the driver

NULL_GPU_API int null_cuMemPoolCreate(Handle* pool, PoolProperties const* properties) {
  if (Status const status = entered_context("cuMemPoolCreate")) return status;
  bool const known = properties->type == kPinned && properties->location.type == kOnDevice &&
                     Machine::get().has(properties->location.id);
  if (!known) return kInvalidValue;
  *pool = PoolTable::get().create(properties->location.id, properties->most);
  return kSuccess;
}

NULL_GPU_API int null_cuMemPoolGetAccess(int* flags, Handle pool, Location const* location) {
  bool allowed = false;
  Status const status = PoolTable::get().allowed(pool, location->id, &allowed);
  *flags = allowed ? kReadAndWrite : kNoAccess;
  return status;
}

NULL_GPU_DOES(cuDeviceGetDefaultMemPool, (Handle * pool, int device),
              *pool = PoolTable::get().default_of(device))

// The current pool: nothing sets another here.
NULL_GPU_GIVES(cuDeviceGetMemPool, (Handle * pool, int device),
               null_cuDeviceGetDefaultMemPool(pool, device))
NULL_GPU_RETURNS(cuMemAllocFromPoolAsync, entered_context,
                 (Address * address, Size size, Handle pool, Handle stream),
                 allocate_async(pool, size, stream, address))

NULL_GPU_API int null_cuMemAllocAsync(Address* address, Size size, Handle stream) {
  if (Status const status = entered_context("cuMemAllocAsync")) return status;
  Handle const pool = PoolTable::get().default_of(current_device());
  return allocate_async(pool, size, stream, address);
}

NULL_GPU_API int null_cuMemFreeAsync(Address address, Handle stream) {
  if (Status const status = entered_context("cuMemFreeAsync")) return status;
  if (address == 0) return kSuccess;
  auto& machine = Machine::get();
  int const device = machine.device_of(reinterpret_cast<void*>(address));
  bool const segment = device >= 0 && machine.memory(device).release(address) == kSuccess;
  if (segment) released_outside(address);
  return segment ? kSuccess : PoolTable::get().release(address, stream);
}

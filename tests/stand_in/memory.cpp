// tests/stand_in/memory.cpp: segments, pages and pools of the stand-in.
// SPDX-License-Identifier: Apache-2.0
#include "state.hpp"

using namespace stand_in;

namespace {

// Do the bytes lie in memory that is allocated?
bool device_memory(unsigned long long address, std::size_t size) {
  Driver& d = driver();
  auto const within = [&](auto const& all, auto length) {
    auto const above = all.upper_bound(address);
    return above != all.begin() &&
           address + size <= std::prev(above)->first + length(std::prev(above)->second);
  };
  return within(d.segments, [](auto const& one) { return one.first; }) ||
         within(d.pooled, [](Pooled const& one) { return one.freed ? 0 : one.size; }) ||
         d.pages.mapped(address, size);
}

}  // namespace

// Pages outlive a context; segments do not.
void stand_in::abandon(int device) {
  Driver& d = driver();
  for (auto at = d.segments.begin(); at != d.segments.end();) {
    if (at->second.second != device) {
      ++at;
      continue;
    }
    ++d.abandoned;
    munmap(reinterpret_cast<void*>(at->first), at->second.first);
    d.used[device] -= at->second.first;
    at = d.segments.erase(at);
  }
}

EXPORT int stand_in_is_memory(unsigned long long address) {
  std::scoped_lock const guard(driver().mutex);
  return device_memory(address, 1);
}
// Whether a device may access the page of an address, or the pool that its block came from.
EXPORT int stand_in_accessible(unsigned long long address, int device) {
  std::scoped_lock const guard(driver().mutex);
  Driver& d = driver();
  if (auto const block = d.pooled.find(address); block != d.pooled.end())
    return block->second.pool->accessible.contains(device);
  return d.pages.allowed(address, device);
}

EXPORT int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  BEGIN(cuMemGetInfo_v2);
  *free = d.capacity - std::min(d.capacity, d.used[here()]);
  *total = d.capacity;
  return 0;
}
EXPORT int cuMemAlloc_v2(unsigned long long* address, std::size_t size) {
  BEGIN_UNSAFE(cuMemAlloc_v2);
  if (size == 0) return kInvalidValue;
  if (size > d.capacity - std::min(d.capacity, d.used[here()])) return kOutOfMemory;
  void* const at = host(size, PROT_READ | PROT_WRITE);
  if (at == nullptr) return kOutOfMemory;
  *address = reinterpret_cast<std::uintptr_t>(at);
  d.segments[*address] = {size, here()};
  d.used[here()] += size;
  return 0;
}
EXPORT int cuMemFree_v2(unsigned long long address) {
  BEGIN_UNSAFE(cuMemFree_v2);
  auto const found = d.segments.find(address);
  if (found == d.segments.end()) return kInvalidValue;
  munmap(reinterpret_cast<void*>(address), found->second.first);
  d.used[found->second.second] -= found->second.first;
  d.segments.erase(found);
  return 0;
}
EXPORT int cuMemsetD8Async(unsigned long long address, unsigned char value, std::size_t size,
                           void* stream) {
  BEGIN(cuMemsetD8Async);
  if (!device_memory(address, size)) return kInvalidValue;
  std::memset(reinterpret_cast<void*>(address), value, size);
  Queue const queue = queue_of(stream);
  ++d.queued[queue];
  finish(queue);
  return 0;
}
EXPORT int cuMemGetAllocationGranularity(std::size_t* granularity, void const*, int) {
  BEGIN_ANYWHERE(cuMemGetAllocationGranularity);
  *granularity = kPage;
  return 0;
}
EXPORT int cuMemAddressReserve(unsigned long long* address, std::size_t size, std::size_t,
                               unsigned long long, unsigned long long) {
  BEGIN_UNSAFE(cuMemAddressReserve);
  if (size == 0 || size % kPage != 0) return kInvalidValue;
  void* const at = host(size, PROT_NONE);
  if (at == nullptr) return kOutOfMemory;
  *address = reinterpret_cast<std::uintptr_t>(at);
  d.pages.reserved(*address, size);
  return 0;
}
EXPORT int cuMemAddressFree(unsigned long long address, std::size_t size) {
  BEGIN_UNSAFE(cuMemAddressFree);
  if (int const error = d.pages.unreserve(address, size)) return error;
  munmap(reinterpret_cast<void*>(address), size);
  return 0;
}
EXPORT int cuMemCreate(unsigned long long* memory, std::size_t size, void const*,
                       unsigned long long) {
  BEGIN_UNSAFE(cuMemCreate);
  if (size == 0 || size % kPage != 0) return kInvalidValue;
  if (size > d.capacity - std::min(d.capacity, d.used[here()])) return kOutOfMemory;
  *memory = d.pages.created(size, here());
  d.used[here()] += size;
  return 0;
}
EXPORT int cuMemRelease(unsigned long long memory) {
  BEGIN_UNSAFE(cuMemRelease);
  return d.pages.release(memory);
}
EXPORT int cuMemMap(unsigned long long address, std::size_t size, std::size_t,
                    unsigned long long memory, unsigned long long) {
  BEGIN_UNSAFE(cuMemMap);
  return d.pages.map(address, size, memory);
}
EXPORT int cuMemSetAccess(unsigned long long address, std::size_t size,
                          null_gpu::AccessDescription const* access, std::size_t count) {
  BEGIN_UNSAFE(cuMemSetAccess);
  for (std::size_t at = 0; at < count; ++at)
    if (int const error = d.pages.allow(address, size, access[at].location.id)) return error;
  mprotect(reinterpret_cast<void*>(address), size, PROT_READ | PROT_WRITE);
  return 0;
}
EXPORT int cuMemUnmap(unsigned long long address, std::size_t size) {
  BEGIN_UNSAFE(cuMemUnmap);
  if (int const error = d.pages.unmap(address, size)) return error;
  void* const at = reinterpret_cast<void*>(address);
  madvise(at, size, MADV_DONTNEED);
  mprotect(at, size, PROT_NONE);
  return 0;
}
EXPORT int cuMemPoolCreate(Pool** pool, void const*) {
  BEGIN(cuMemPoolCreate);
  *pool = *d.pools.insert(new Pool{here()}).first;
  return 0;
}
EXPORT int cuMemPoolSetAccess(Pool* pool, null_gpu::AccessDescription const* access,
                              std::size_t count) {
  BEGIN(cuMemPoolSetAccess);
  if (!d.pools.contains(pool)) return kInvalidValue;
  for (std::size_t at = 0; at < count; ++at) pool->accessible.insert(access[at].location.id);
  return 0;
}
EXPORT int cuMemPoolDestroy(Pool* pool) {
  BEGIN(cuMemPoolDestroy);
  reap();
  // The last of what was freed but not reached goes with the pool.
  for (auto& [address, block] : d.pooled)
    if (block.pool == pool && !block.freed) return kInvalidValue;
  std::erase_if(d.pooled, [pool](auto const& each) { return each.second.pool == pool; });
  d.used[pool->device] -= pool->bytes.reserved;
  d.pools.erase(pool);
  delete pool;
  return 0;
}
EXPORT int cuMemPoolSetAttribute(Pool* pool, int attribute, void* value) {
  BEGIN(cuMemPoolSetAttribute);
  if (!d.pools.contains(pool) || attribute != null_gpu::kReleaseThreshold) return kInvalidValue;
  pool->bytes.threshold = *static_cast<std::uint64_t*>(value);
  return 0;
}
EXPORT int cuMemPoolGetAttribute(Pool* pool, int attribute, void* value) {
  BEGIN(cuMemPoolGetAttribute);
  if (!d.pools.contains(pool) || attribute < null_gpu::kReleaseThreshold ||
      attribute > null_gpu::kUsedNow)
    return kInvalidValue;
  null_gpu::PoolBytes const& bytes = pool->bytes;
  *static_cast<std::uint64_t*>(value) = attribute == null_gpu::kReleaseThreshold ? bytes.threshold
                                        : attribute == null_gpu::kReservedNow    ? bytes.reserved
                                        : attribute == null_gpu::kReservedHigh ? bytes.reserved_high
                                                                               : bytes.used;
  return 0;
}
EXPORT int cuMemPoolTrimTo(Pool* pool, std::size_t keep) {
  BEGIN(cuMemPoolTrimTo);
  if (!d.pools.contains(pool)) return kInvalidValue;
  settle(*pool, keep);
  return 0;
}
EXPORT int cuMemAllocFromPoolAsync(unsigned long long* address, std::size_t size, Pool* pool,
                                   void*) {
  BEGIN(cuMemAllocFromPoolAsync);
  if (!d.pools.contains(pool) || size == 0) return kInvalidValue;
  reap();
  std::size_t const more = pool->bytes.lacking(size);
  if (more > d.capacity - std::min(d.capacity, d.used[pool->device])) return kOutOfMemory;
  d.used[pool->device] += more;
  pool->bytes.grow(more);
  void* const at = host(size, PROT_READ | PROT_WRITE);
  if (at == nullptr) return kOutOfMemory;
  *address = reinterpret_cast<std::uintptr_t>(at);
  d.pooled[*address] = Pooled{pool, size};
  pool->bytes.use(size);
  return 0;
}
EXPORT int cuMemFreeAsync(unsigned long long address, void* stream) {
  BEGIN(cuMemFreeAsync);
  auto const found = d.pooled.find(address);
  if (found == d.pooled.end() || found->second.freed) return kInvalidValue;
  if (auto const capture = d.captures.find(stream); capture != d.captures.end()) {
    capture->second.invalid = true;  // nothing here is allocated within a capture
    return kInvalidValue;
  }
  Queue const queue = queue_of(stream);
  if (std::get<0>(queue) != found->second.pool->device) return kInvalidHandle;
  found->second.freed = true;
  found->second.queue = queue;
  found->second.work = ++d.queued[queue];
  finish(queue);
  return 0;
}

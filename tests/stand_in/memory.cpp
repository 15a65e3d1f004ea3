// tests/stand_in/memory.cpp: segments, pages and pools of the stand-in.
// SPDX-License-Identifier: Apache-2.0
#include "state.hpp"

using namespace stand_in;

namespace {

// Do the bytes lie in pages that follow one another?
bool mapped(unsigned long long address, std::size_t size) {
  Driver& d = driver();
  auto page = d.mappings.upper_bound(address);
  if (page == d.mappings.begin()) return false;
  --page;
  unsigned long long at = page->first;
  for (; page != d.mappings.end() && page->first == at && at < address + size; ++page)
    at += page->second.size;
  return at >= address + size;
}

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
         mapped(address, size);
}

struct Access {
  int type, device, flags;
};

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
  auto const above = d.mappings.upper_bound(address);
  return above != d.mappings.begin() && std::prev(above)->second.accessible.contains(device);
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
  d.reservations[*address] = size;
  return 0;
}
EXPORT int cuMemAddressFree(unsigned long long address, std::size_t size) {
  BEGIN_UNSAFE(cuMemAddressFree);
  auto const found = d.reservations.find(address);
  if (found == d.reservations.end() || found->second != size) return kInvalidValue;
  auto const mapping = d.mappings.lower_bound(address);
  if (mapping != d.mappings.end() && mapping->first < address + size) return kInvalidValue;
  munmap(reinterpret_cast<void*>(address), size);
  d.reservations.erase(found);
  return 0;
}
EXPORT int cuMemCreate(unsigned long long* memory, std::size_t size, void const*,
                       unsigned long long) {
  BEGIN_UNSAFE(cuMemCreate);
  if (size == 0 || size % kPage != 0) return kInvalidValue;
  if (size > d.capacity - std::min(d.capacity, d.used[here()])) return kOutOfMemory;
  *memory = d.next_handle++;
  d.made[*memory] = Made{here(), size};
  d.used[here()] += size;
  return 0;
}
EXPORT int cuMemRelease(unsigned long long memory) {
  BEGIN_UNSAFE(cuMemRelease);
  auto const found = d.made.find(memory);
  if (found == d.made.end() || found->second.released) return kInvalidValue;
  found->second.released = true;
  drop(memory);
  return 0;
}
EXPORT int cuMemMap(unsigned long long address, std::size_t size, std::size_t,
                    unsigned long long memory, unsigned long long) {
  BEGIN_UNSAFE(cuMemMap);
  auto const above = d.reservations.upper_bound(address);
  auto const found = d.made.find(memory);
  if (above == d.reservations.begin() || found == d.made.end()) return kInvalidValue;
  auto const& [start, length] = *std::prev(above);
  if (address + size > start + length || found->second.size != size) return kInvalidValue;
  auto const next = d.mappings.lower_bound(address);
  if (next != d.mappings.end() && next->first < address + size) return kInvalidValue;
  ++found->second.mappings;
  d.mappings[address] = Mapping{size, memory};
  return 0;
}
EXPORT int cuMemSetAccess(unsigned long long address, std::size_t size, Access const* access,
                          std::size_t count) {
  BEGIN_UNSAFE(cuMemSetAccess);
  auto const found = d.mappings.find(address);
  if (found == d.mappings.end() || found->second.size != size) return kInvalidValue;
  mprotect(reinterpret_cast<void*>(address), size, PROT_READ | PROT_WRITE);
  for (std::size_t at = 0; at < count; ++at) found->second.accessible.insert(access[at].device);
  return 0;
}
EXPORT int cuMemUnmap(unsigned long long address, std::size_t size) {
  BEGIN_UNSAFE(cuMemUnmap);
  auto const found = d.mappings.find(address);
  if (found == d.mappings.end() || found->second.size != size) return kInvalidValue;
  void* const at = reinterpret_cast<void*>(address);
  madvise(at, size, MADV_DONTNEED);
  mprotect(at, size, PROT_NONE);
  auto const memory = found->second.memory;
  d.mappings.erase(found);
  --d.made[memory].mappings;
  drop(memory);
  return 0;
}
EXPORT int cuMemPoolCreate(Pool** pool, void const*) {
  BEGIN(cuMemPoolCreate);
  *pool = *d.pools.insert(new Pool{here()}).first;
  return 0;
}
EXPORT int cuMemPoolSetAccess(Pool* pool, Access const* access, std::size_t count) {
  BEGIN(cuMemPoolSetAccess);
  if (!d.pools.contains(pool)) return kInvalidValue;
  for (std::size_t at = 0; at < count; ++at) pool->accessible.insert(access[at].device);
  return 0;
}
EXPORT int cuMemPoolDestroy(Pool* pool) {
  BEGIN(cuMemPoolDestroy);
  reap();
  // The last of what was freed but not reached goes with the pool.
  for (auto& [address, block] : d.pooled)
    if (block.pool == pool && !block.freed) return kInvalidValue;
  std::erase_if(d.pooled, [pool](auto const& each) { return each.second.pool == pool; });
  d.used[pool->device] -= pool->reserved;
  d.pools.erase(pool);
  delete pool;
  return 0;
}
EXPORT int cuMemPoolSetAttribute(Pool* pool, int attribute, void* value) {
  BEGIN(cuMemPoolSetAttribute);
  if (!d.pools.contains(pool) || attribute != 4) return kInvalidValue;
  pool->threshold = *static_cast<std::uint64_t*>(value);
  return 0;
}
EXPORT int cuMemPoolGetAttribute(Pool* pool, int attribute, void* value) {
  BEGIN(cuMemPoolGetAttribute);
  if (!d.pools.contains(pool) || attribute < 4 || attribute > 7) return kInvalidValue;
  *static_cast<std::uint64_t*>(value) = attribute == 4   ? pool->threshold
                                        : attribute <= 6 ? pool->reserved
                                                         : pool->used;
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
  std::size_t const wanted = up(pool->used + size, kPoolStep);
  if (wanted > pool->reserved) {
    if (wanted - pool->reserved > d.capacity - std::min(d.capacity, d.used[pool->device]))
      return kOutOfMemory;
    d.used[pool->device] += wanted - pool->reserved;
    pool->reserved = wanted;
  }
  void* const at = host(size, PROT_READ | PROT_WRITE);
  if (at == nullptr) return kOutOfMemory;
  *address = reinterpret_cast<std::uintptr_t>(at);
  d.pooled[*address] = Pooled{pool, size};
  pool->used += size;
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

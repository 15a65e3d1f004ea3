// native/driver_memory.cpp: the driver's allocations, virtual memory, pools and pointers.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/driver_memory.hpp"

#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "null_gpu/native/contexts.hpp"
#include "null_gpu/native/hidden_writes.hpp"
#include "null_gpu/native/host_memory.hpp"
#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/pools.hpp"
#include "null_gpu/native/streams.hpp"
#include "null_gpu/native/values.hpp"

using namespace allocbench::null_gpu;

namespace {

Range range_of(Address address) {
  auto& machine = Machine::get();
  int const device = machine.device_of(reinterpret_cast<void*>(address));
  if (device < 0) return {};
  if (auto const pooled = PoolTable::get().range_of(address)) return *pooled;
  Range const range = machine.memory(device).range_of(address);
  bool const reserved = virtual_memory().reserved_at(range.begin);
  return reserved && !virtual_memory().mapped(address, 1) ? Range{} : range;
}

// Whether there is memory behind all of a range.
bool is_memory(Address address, Size size) {
  if (virtual_memory().mapped(address, size))
    return virtual_memory().allowed(address, current_device());
  Range const range = range_of(address);
  return range.size != 0 && !virtual_memory().reserved_at(range.begin) &&
         address + size <= range.begin + range.size;
}

// Whether a copy would touch addresses of the card behind which there is no memory.
bool is_beyond(Address address, Size size) {
  bool const on_card = Machine::get().device_of(reinterpret_cast<void*>(address)) >= 0;
  return on_card && size != 0 && !is_memory(address, size);
}

Status set_bytes(Address to, unsigned char value, Size size) {
  if (!is_memory(to, size)) return kInvalidValue;
  Values::get().fill(reinterpret_cast<void*>(to), value, size);
  return kSuccess;
}

// Only words of four equal bytes are recorded; any other word counts as written by a kernel.
Status set_words(Address to, unsigned value, Size count) {
  unsigned const byte = value & 0xff;
  if (value == byte * 0x01010101u)
    return set_bytes(to, static_cast<unsigned char>(byte), count * 4);
  if (!is_memory(to, count * 4)) return kInvalidValue;
  Values::get().forget_all();
  return kSuccess;
}

enum PointerAttribute : int {
  kContext = 1,
  kMemoryType = 2,
  kDevicePointer = 3,
  kHostPointer = 4,
  kBufferId = 7,
  kIsManaged = 8,
  kDeviceOrdinal = 9,
  kRangeBegin = 11,
  kRangeSize = 12,
  kMapped = 13,
  kPoolHandle = 17,
};

}  // namespace

namespace allocbench::null_gpu {

VirtualMemory& virtual_memory() {
  static auto* instance =
      new VirtualMemory([](int device, Size size) { Machine::get().memory(device).give(size); });
  return *instance;
}

}  // namespace allocbench::null_gpu

NULL_GPU_API int null_cuMemAlloc_v2(Address* address, Size size) {
  if (Status const status = entered_context("cuMemAlloc_v2")) return status;
  if (Status const status = Streams::get().check_unsafe()) return status;
  return size == 0 ? kInvalidValue : allocate_memory(current_device(), size, address);
}

NULL_GPU_API int null_cuMemFree_v2(Address address) {
  if (Status const status = entered_context("cuMemFree_v2")) return status;
  if (Status const status = Streams::get().check_unsafe()) return status;
  auto& machine = Machine::get();
  if (address == 0) return kSuccess;
  int const device = machine.device_of(reinterpret_cast<void*>(address));
  if (device < 0) return kInvalidValue;
  if (machine.memory(device).release(address) == kSuccess) return kSuccess;
  return PoolTable::get().release(address);
}

NULL_GPU_API int null_cuMemGetInfo_v2(Size* free, Size* total) {
  if (Status const status = entered_context("cuMemGetInfo_v2")) return status;
  *free = current_memory().free();
  *total = Machine::get().settings().memory;
  return kSuccess;
}

NULL_GPU_API int null_cuMemHostAlloc(void** pointer, Size size, unsigned) {
  if (Status const status = entered_context("cuMemHostAlloc")) return status;
  *pointer = pinned::allocate(size);
  return *pointer == nullptr ? kOutOfMemory : kSuccess;
}

NULL_GPU_API int null_cuMemFreeHost(void* pointer) {
  pinned::release(pointer);
  return kSuccess;
}

NULL_GPU_API int null_cuMemHostRegister_v2(void* pointer, Size size, unsigned) {
  pinned::add(pointer, size);
  return kSuccess;
}

NULL_GPU_API int null_cuMemHostUnregister(void* pointer) {
  pinned::remove(pointer);
  return kSuccess;
}

NULL_GPU_API int null_cuMemcpyHtoD_v2(Address to, void const* from, Size size) {
  if (is_beyond(to, size)) return kInvalidValue;
  Values::get().copy(reinterpret_cast<void*>(to), from, size);
  return kSuccess;
}

NULL_GPU_API int null_cuMemcpyDtoH_v2(void* to, Address from, Size size) {
  if (is_beyond(from, size)) return kInvalidValue;
  Values::get().copy(to, reinterpret_cast<void*>(from), size);
  return kSuccess;
}

NULL_GPU_API int null_cuMemcpyDtoD_v2(Address to, Address from, Size size) {
  if (is_beyond(to, size) || is_beyond(from, size)) return kInvalidValue;
  Values::get().copy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), size);
  return kSuccess;
}

NULL_GPU_API int null_cuMemcpyHtoDAsync_v2(Address to, void const* from, Size size, Handle stream) {
  return Streams::get().enqueue(stream) ? kSuccess : null_cuMemcpyHtoD_v2(to, from, size);
}

NULL_GPU_API int null_cuMemcpyDtoHAsync_v2(void* to, Address from, Size size, Handle stream) {
  return Streams::get().enqueue(stream) ? kSuccess : null_cuMemcpyDtoH_v2(to, from, size);
}

NULL_GPU_API int null_cuMemcpyDtoDAsync_v2(Address to, Address from, Size size, Handle stream) {
  return Streams::get().enqueue(stream) ? kSuccess : null_cuMemcpyDtoD_v2(to, from, size);
}

NULL_GPU_API int null_cuMemsetD8_v2(Address to, unsigned char value, Size size) {
  if (Status const status = entered_context("cuMemsetD8_v2")) return status;
  return set_bytes(to, value, size);
}

NULL_GPU_API int null_cuMemsetD8Async(Address to, unsigned char value, Size size, Handle stream) {
  if (Status const status = entered_context("cuMemsetD8Async")) return status;
  return Streams::get().enqueue(stream) ? kSuccess : set_bytes(to, value, size);
}

NULL_GPU_API int null_cuMemsetD32_v2(Address to, unsigned value, Size count) {
  if (Status const status = entered_context("cuMemsetD32_v2")) return status;
  return set_words(to, value, count);
}

NULL_GPU_API int null_cuMemsetD32Async(Address to, unsigned value, Size count, Handle stream) {
  if (Status const status = entered_context("cuMemsetD32Async")) return status;
  return Streams::get().enqueue(stream) ? kSuccess : set_words(to, value, count);
}

NULL_GPU_API int null_cuMemGetAllocationGranularity(Size* bytes, AllocationProperties const*, int) {
  if (Status const status = entered_driver("cuMemGetAllocationGranularity")) return status;
  *bytes = kPage;
  return kSuccess;
}

NULL_GPU_API int null_cuMemAddressReserve(Address* address, Size size, Size alignment, Address,
                                          unsigned long long flags) {
  if (Status const status = entered_context("cuMemAddressReserve")) return status;
  bool const is_power = (alignment & (alignment - 1)) == 0;
  if (size == 0 || size % kPage != 0 || !is_power || flags != 0) return kInvalidValue;
  if (Status const status = current_memory().reserve(size, address)) return status;
  virtual_memory().reserved(*address, size);
  return kSuccess;
}

NULL_GPU_API int null_cuMemAddressFree(Address address, Size size) {
  if (Status const status = entered_context("cuMemAddressFree")) return status;
  if (Status const status = virtual_memory().unreserve(address, size)) return status;
  auto& machine = Machine::get();
  return machine.memory(machine.device_of(reinterpret_cast<void*>(address))).unreserve(address);
}

NULL_GPU_API int null_cuMemCreate(unsigned long long* handle, Size size,
                                  AllocationProperties const* properties, unsigned long long) {
  if (Status const status = entered_context("cuMemCreate")) return status;
  bool const on_device = properties != nullptr && properties->location.type == kOnDevice;
  int const device = on_device ? properties->location.id : current_device();
  if (!Machine::get().has(device)) return kInvalidDevice;
  if (size == 0 || size % kPage != 0) return kInvalidValue;
  if (Status const status = Machine::get().memory(device).take(size)) return status;
  *handle = virtual_memory().created(size, device);
  return kSuccess;
}

NULL_GPU_API int null_cuMemRelease(unsigned long long handle) {
  if (Status const status = entered_context("cuMemRelease")) return status;
  return virtual_memory().release(handle);
}

NULL_GPU_API int null_cuMemMap(Address address, Size size, Size, unsigned long long handle,
                               unsigned long long) {
  if (Status const status = entered_context("cuMemMap")) return status;
  return virtual_memory().map(address, size, handle);
}

NULL_GPU_API int null_cuMemUnmap(Address address, Size size) {
  if (Status const status = entered_context("cuMemUnmap")) return status;
  return virtual_memory().unmap(address, size);
}

NULL_GPU_API int null_cuMemRetainAllocationHandle(unsigned long long* handle, void* address) {
  return virtual_memory().retain(reinterpret_cast<Address>(address), handle);
}

NULL_GPU_API int null_cuMemSetAccess(Address address, Size size, AccessDescription const* access,
                                     Size count) {
  if (Status const status = entered_context("cuMemSetAccess")) return status;
  for (Size index = 0; index < count; ++index) {
    int const device = access[index].location.id;
    if (Status const status = virtual_memory().allow(address, size, device)) return status;
  }
  return kSuccess;
}

// `flags` gets whether a device may use the memory at an address.
NULL_GPU_API int null_cuMemGetAccess(unsigned long long* flags, Location const* location,
                                     Address address) {
  if (!virtual_memory().mapped(address, 1)) return kInvalidValue;
  *flags = virtual_memory().allowed(address, location->id) ? kReadAndWrite : kNoAccess;
  return kSuccess;
}

NULL_GPU_API int null_cuMemPoolCreate(Handle* pool, PoolProperties const* properties) {
  if (Status const status = entered_context("cuMemPoolCreate")) return status;
  bool const known = properties->type == kPinned && properties->location.type == kOnDevice &&
                     Machine::get().has(properties->location.id);
  if (!known) return kInvalidValue;
  *pool = PoolTable::get().create(properties->location.id, properties->most);
  return kSuccess;
}

NULL_GPU_API int null_cuMemPoolSetAccess(Handle pool, AccessDescription const* access,
                                         std::size_t count) {
  if (Status const status = entered_context("cuMemPoolSetAccess")) return status;
  return PoolTable::get().set_access(pool, access, count);
}

NULL_GPU_API int null_cuMemPoolGetAccess(int* flags, Handle pool, Location const* location) {
  bool allowed = false;
  Status const status = PoolTable::get().allowed(pool, location->id, &allowed);
  *flags = allowed ? kReadAndWrite : kNoAccess;
  return status;
}

NULL_GPU_API int null_cuMemPoolDestroy(Handle pool) {
  if (Status const status = entered_context("cuMemPoolDestroy")) return status;
  return PoolTable::get().destroy(pool);
}

NULL_GPU_API int null_cuDeviceGetDefaultMemPool(Handle* pool, int device) {
  *pool = PoolTable::get().default_of(device);
  return kSuccess;
}

NULL_GPU_API int null_cuMemPoolSetAttribute(Handle pool, int attribute, void* value) {
  if (Status const status = entered_context("cuMemPoolSetAttribute")) return status;
  bool const wide = attribute >= kReleaseThreshold;
  std::uint64_t const number = wide ? *static_cast<std::uint64_t*>(value)
                                    : static_cast<std::uint64_t>(*static_cast<int*>(value));
  return PoolTable::get().set_attribute(pool, attribute, number);
}

NULL_GPU_API int null_cuMemPoolGetAttribute(Handle pool, int attribute, std::uint64_t* value) {
  if (Status const status = entered_context("cuMemPoolGetAttribute")) return status;
  return PoolTable::get().attribute(pool, attribute, value);
}

NULL_GPU_API int null_cuMemPoolTrimTo(Handle pool, Size keep) {
  if (Status const status = entered_context("cuMemPoolTrimTo")) return status;
  return PoolTable::get().trim(pool, keep);
}

NULL_GPU_API int null_cuMemAllocFromPoolAsync(Address* address, Size size, Handle pool,
                                              Handle stream) {
  if (Status const status = entered_context("cuMemAllocFromPoolAsync")) return status;
  return PoolTable::get().allocate(pool, size, stream, address);
}

NULL_GPU_API int null_cuMemAllocAsync(Address* address, Size size, Handle stream) {
  if (Status const status = entered_context("cuMemAllocAsync")) return status;
  auto& pools = PoolTable::get();
  Handle const pool = pools.default_of(current_device());
  return pools.allocate(pool, size, stream, address);
}

NULL_GPU_API int null_cuMemFreeAsync(Address address, Handle stream) {
  if (Status const status = entered_context("cuMemFreeAsync")) return status;
  if (address == 0) return kSuccess;
  auto& machine = Machine::get();
  int const device = machine.device_of(reinterpret_cast<void*>(address));
  bool const segment = device >= 0 && machine.memory(device).release(address) == kSuccess;
  return segment ? kSuccess : PoolTable::get().release(address, stream);
}

NULL_GPU_API int null_cuMemGetAddressRange_v2(Address* begin, Size* size, Address address) {
  Range const range = range_of(address);
  if (range.size == 0 || virtual_memory().reserved_at(range.begin)) return kNotFound;
  if (begin != nullptr) *begin = range.begin;
  if (size != nullptr) *size = range.size;
  return kSuccess;
}

NULL_GPU_API int null_cuPointerGetAttribute(void* out, int attribute, Address address) {
  void* const pointer = reinterpret_cast<void*>(address);
  int const device = Machine::get().device_of(pointer);
  if (device < 0) {
    if (!pinned::contains(pointer)) return kInvalidValue;
    if (attribute == kDevicePointer || attribute == kHostPointer) {
      *static_cast<Address*>(out) = address;  // kernels use the same address
      return kSuccess;
    }
    if (attribute != kMemoryType) return kInvalidValue;
    *static_cast<unsigned*>(out) = 1;  // CU_MEMORYTYPE_HOST
    return kSuccess;
  }
  Range const range = range_of(address);
  if (range.size == 0) return kInvalidValue;
  bool const mapped = virtual_memory().reserved_at(range.begin);
  Handle const pool = PoolTable::get().pool_of(address);
  auto* const number = static_cast<std::uint64_t*>(out);
  auto* const word = static_cast<int*>(out);
  switch (attribute) {
    case kContext:  // of a segment; other memory belongs to no context
      *number = mapped || pool != nullptr ? 0 : kFirstContext + device;
      return kSuccess;
    case kMemoryType:
      *word = 2;  // CU_MEMORYTYPE_DEVICE
      return kSuccess;
    case kDevicePointer:
      pointer_given(address);
      *number = address;
      // Mapped pages have one once they are accessible.
      return mapped && !is_memory(address, 1) ? kInvalidValue : kSuccess;
    case kBufferId:
      *number = address;
      return kSuccess;
    case kIsManaged:
      *word = 0;
      return kSuccess;
    case kDeviceOrdinal:
      *word = device;
      return kSuccess;
    case kMapped:
      *word = 1;
      return kSuccess;
    case kPoolHandle:
      *number = reinterpret_cast<Address>(pool);
      return kSuccess;
    case kRangeBegin:
      *number = range.begin;
      return kSuccess;
    case kRangeSize:
      *number = range.size;
      return kSuccess;
    default:
      return kInvalidValue;
  }
}

// Like the driver, writes 0 for an attribute that the address does not have.
NULL_GPU_API int null_cuPointerGetAttributes(unsigned count, int const* attributes, void** out,
                                             Address address) {
  for (unsigned index = 0; index < count; ++index) {
    if (null_cuPointerGetAttribute(out[index], attributes[index], address) != kSuccess) {
      std::memset(out[index], 0, sizeof(int));
    }
  }
  return kSuccess;
}

// null_gpu/driver_memory.cpp: the driver's memory: allocations, virtual memory, pools, pointers.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "null_gpu/host_memory.hpp"
#include "null_gpu/machine.hpp"
#include "null_gpu/pools.hpp"
#include "null_gpu/streams.hpp"
#include "null_gpu/values.hpp"

using namespace allocbench::null_gpu;

namespace {

// Memory without an address. It lives while it is held or mapped.
struct Physical {
  Size size;
  int device;
  int holds;
};

class PhysicalMemory {
 public:
  static PhysicalMemory& get() {
    static auto* made = new PhysicalMemory;
    return *made;
  }

  Status create(Size size, int device, unsigned long long* handle) {
    if (Status const status = Machine::get().memory(device).take(size)) return status;
    std::lock_guard const lock(mutex_);
    *handle = ++last_;
    pieces_[*handle] = {size, device, 1};
    return kSuccess;
  }

  Status release(unsigned long long handle) {
    std::lock_guard const lock(mutex_);
    return drop(handle);
  }

  Status map(Address address, unsigned long long handle) {
    std::lock_guard const lock(mutex_);
    auto const found = pieces_.find(handle);
    if (found == pieces_.end()) return kInvalidValue;
    ++found->second.holds;
    mapped_[address] = handle;
    return kSuccess;
  }

  // Everything that is mapped inside of a range.
  Status unmap(Address begin, Size size) {
    std::lock_guard const lock(mutex_);
    for (auto one = mapped_.lower_bound(begin);
         one != mapped_.end() && one->first < begin + size;) {
      drop(one->second);
      one = mapped_.erase(one);
    }
    return kSuccess;
  }

  Status handle_of(Address address, unsigned long long* handle) {
    std::lock_guard const lock(mutex_);
    auto after = mapped_.upper_bound(address);
    if (after == mapped_.begin()) return kInvalidValue;
    *handle = std::prev(after)->second;
    ++pieces_[*handle].holds;
    return kSuccess;
  }

 private:
  Status drop(unsigned long long handle) {
    auto const found = pieces_.find(handle);
    if (found == pieces_.end()) return kInvalidValue;
    if (--found->second.holds == 0) {
      Machine::get().memory(found->second.device).give(found->second.size);
      pieces_.erase(found);
    }
    return kSuccess;
  }

  std::mutex mutex_;
  unsigned long long last_ = 0;
  std::unordered_map<unsigned long long, Physical> pieces_;
  std::map<Address, unsigned long long> mapped_;
};

Range range_of(Address address) {
  auto& machine = Machine::get();
  int const device = machine.device_of(reinterpret_cast<void*>(address));
  if (device < 0) return {};
  Range const pooled = Pools::get().range_of(address);
  return pooled.size != 0 ? pooled : machine.memory(device).range_of(address);
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
};

}  // namespace

NULL_GPU_API int null_cuMemAlloc_v2(Address* address, Size size) {
  if (Status const status = Streams::get().check_unsafe()) return status;
  return current_memory().allocate(size, address);
}

NULL_GPU_API int null_cuMemFree_v2(Address address) {
  auto& machine = Machine::get();
  int const device = machine.device_of(reinterpret_cast<void*>(address));
  return device < 0 ? kInvalidValue : machine.memory(device).release(address);
}

NULL_GPU_API int null_cuMemGetInfo_v2(Size* free, Size* total) {
  *free = current_memory().free();
  *total = Machine::get().settings().memory;
  return kSuccess;
}

NULL_GPU_API int null_cuMemHostAlloc(void** pointer, Size size, unsigned) {
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
  Values::get().copy(reinterpret_cast<void*>(to), from, size);
  return kSuccess;
}

NULL_GPU_API int null_cuMemcpyDtoH_v2(void* to, Address from, Size size) {
  Values::get().copy(to, reinterpret_cast<void*>(from), size);
  return kSuccess;
}

NULL_GPU_API int null_cuMemcpyDtoD_v2(Address to, Address from, Size size) {
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
  Values::get().fill(reinterpret_cast<void*>(to), value, size);
  return kSuccess;
}

NULL_GPU_API int null_cuMemsetD8Async(Address to, unsigned char value, Size size, Handle stream) {
  return Streams::get().enqueue(stream) ? kSuccess : null_cuMemsetD8_v2(to, value, size);
}

// A word whose bytes differ is not kept: it reads as if a kernel had written it.
NULL_GPU_API int null_cuMemsetD32_v2(Address to, unsigned value, Size count) {
  unsigned const byte = value & 0xff;
  if (value == byte * 0x01010101u) {
    Values::get().fill(reinterpret_cast<void*>(to), static_cast<int>(byte), count * 4);
  } else {
    Values::get().forget_all();
  }
  return kSuccess;
}

NULL_GPU_API int null_cuMemsetD32Async(Address to, unsigned value, Size count, Handle stream) {
  return Streams::get().enqueue(stream) ? kSuccess : null_cuMemsetD32_v2(to, value, count);
}

NULL_GPU_API int null_cuMemGetAllocationGranularity(Size* bytes, AllocationProperties const*, int) {
  *bytes = kPage;
  return kSuccess;
}

NULL_GPU_API int null_cuMemAddressReserve(Address* address, Size size, Size, Address,
                                          unsigned long long) {
  return current_memory().reserve(size, address);
}

NULL_GPU_API int null_cuMemAddressFree(Address address, Size) {
  auto& machine = Machine::get();
  int const device = machine.device_of(reinterpret_cast<void*>(address));
  return device < 0 ? kInvalidValue : machine.memory(device).unreserve(address);
}

NULL_GPU_API int null_cuMemCreate(unsigned long long* handle, Size size,
                                  AllocationProperties const* properties, unsigned long long) {
  bool const on_device = properties != nullptr && properties->location.type == kOnDevice;
  int const device = on_device ? properties->location.id : current_device();
  if (!Machine::get().has(device)) return kInvalidDevice;
  return PhysicalMemory::get().create(size, device, handle);
}

NULL_GPU_API int null_cuMemRelease(unsigned long long handle) {
  return PhysicalMemory::get().release(handle);
}

NULL_GPU_API int null_cuMemMap(Address address, Size, Size, unsigned long long handle,
                               unsigned long long) {
  return PhysicalMemory::get().map(address, handle);
}

NULL_GPU_API int null_cuMemUnmap(Address address, Size size) {
  return PhysicalMemory::get().unmap(address, size);
}

NULL_GPU_API int null_cuMemRetainAllocationHandle(unsigned long long* handle, void* address) {
  return PhysicalMemory::get().handle_of(reinterpret_cast<Address>(address), handle);
}

NULL_GPU_API int null_cuMemSetAccess(Address, Size, void const*, Size) { return kSuccess; }

NULL_GPU_API int null_cuMemPoolCreate(Handle* pool, PoolProperties const* properties) {
  *pool = Pools::get().create(properties->location.id);
  return kSuccess;
}

// Device memory is address space: whoever asks may use it.
NULL_GPU_API int null_cuMemPoolSetAccess(Handle, void const*, std::size_t) { return kSuccess; }

NULL_GPU_API int null_cuMemPoolDestroy(Handle pool) {
  Pools::get().destroy(pool);
  return kSuccess;
}

NULL_GPU_API int null_cuDeviceGetDefaultMemPool(Handle* pool, int device) {
  *pool = Pools::get().default_of(device);
  return kSuccess;
}

NULL_GPU_API int null_cuMemPoolSetAttribute(Handle pool, int attribute, void* value) {
  bool const wide = attribute >= kReleaseThreshold && attribute <= kUsedHigh;
  std::uint64_t const number = wide ? *static_cast<std::uint64_t*>(value) : 0;
  return Pools::get().set_attribute(pool, attribute, number);
}

NULL_GPU_API int null_cuMemPoolGetAttribute(Handle pool, int attribute, std::uint64_t* value) {
  return Pools::get().attribute(pool, attribute, value);
}

NULL_GPU_API int null_cuMemPoolTrimTo(Handle pool, Size keep) {
  Pools::get().trim(pool, keep);
  return kSuccess;
}

NULL_GPU_API int null_cuMemAllocFromPoolAsync(Address* address, Size size, Handle pool, Handle) {
  return Pools::get().allocate(pool, size, address);
}

NULL_GPU_API int null_cuMemAllocAsync(Address* address, Size size, Handle) {
  return Pools::get().allocate(Pools::get().default_of(current_device()), size, address);
}

NULL_GPU_API int null_cuMemFreeAsync(Address address, Handle) {
  return Pools::get().release(address);
}

NULL_GPU_API int null_cuMemGetAddressRange_v2(Address* begin, Size* size, Address address) {
  Range const range = range_of(address);
  if (range.size == 0) return kInvalidValue;
  if (begin != nullptr) *begin = range.begin;
  if (size != nullptr) *size = range.size;
  return kSuccess;
}

NULL_GPU_API int null_cuPointerGetAttribute(void* out, int attribute, Address address) {
  void* const pointer = reinterpret_cast<void*>(address);
  int const device = Machine::get().device_of(pointer);
  if (device < 0) {
    if (attribute != kMemoryType || !pinned::contains(pointer)) return kInvalidValue;
    *static_cast<unsigned*>(out) = 1;  // the host's
    return kSuccess;
  }
  auto* const number = static_cast<std::uint64_t*>(out);
  auto* const word = static_cast<int*>(out);
  switch (attribute) {
    case kContext:
      *number = 0xC000 + device;
      return kSuccess;
    case kMemoryType:
      *word = 2;
      return kSuccess;  // a device's
    case kDevicePointer:
    case kBufferId:
      *number = address;
      return kSuccess;
    case kIsManaged:
      *word = 0;
      return kSuccess;
    case kDeviceOrdinal:
      *word = device;
      return kSuccess;
    case kRangeBegin:
      return null_cuMemGetAddressRange_v2(number, nullptr, address);
    case kRangeSize:
      return null_cuMemGetAddressRange_v2(nullptr, number, address);
    default:
      return kInvalidValue;
  }
}

// Attributes that an address does not have are written as 0, as the driver does.
NULL_GPU_API int null_cuPointerGetAttributes(unsigned count, int const* attributes, void** out,
                                             Address address) {
  for (unsigned one = 0; one < count; ++one) {
    if (null_cuPointerGetAttribute(out[one], attributes[one], address) != kSuccess) {
      std::memset(out[one], 0, sizeof(int));
    }
  }
  return kSuccess;
}

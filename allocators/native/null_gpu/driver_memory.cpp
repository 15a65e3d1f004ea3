// null_gpu/driver_memory.cpp: the driver's allocations, virtual memory, pools and pointers.
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

// Physical memory (cuMemCreate). It is freed when no handle and no mapping refers to it.
struct Physical {
  Size size;
  int device;
  int references;
};

class PhysicalMemory {
 public:
  static PhysicalMemory& get() {
    static auto* instance = new PhysicalMemory;
    return *instance;
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
    auto const entry = pieces_.find(handle);
    if (entry == pieces_.end()) return kInvalidValue;
    ++entry->second.references;
    mapped_[address] = handle;
    return kSuccess;
  }

  // Unmaps everything that is mapped in [begin, begin + size).
  Status unmap(Address begin, Size size) {
    std::lock_guard const lock(mutex_);
    for (auto mapping = mapped_.lower_bound(begin);
         mapping != mapped_.end() && mapping->first < begin + size;) {
      drop(mapping->second);
      mapping = mapped_.erase(mapping);
    }
    return kSuccess;
  }

  Status handle_of(Address address, unsigned long long* handle) {
    std::lock_guard const lock(mutex_);
    auto after = mapped_.upper_bound(address);
    if (after == mapped_.begin()) return kInvalidValue;
    *handle = std::prev(after)->second;
    ++pieces_[*handle].references;
    return kSuccess;
  }

 private:
  Status drop(unsigned long long handle) {
    auto const entry = pieces_.find(handle);
    if (entry == pieces_.end()) return kInvalidValue;
    if (--entry->second.references == 0) {
      Machine::get().memory(entry->second.device).give(entry->second.size);
      pieces_.erase(entry);
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
  Range const pooled = DriverPools::get().range_of(address);
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

// Only words of four equal bytes are recorded; any other word counts as written by a kernel.
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
  *pool = DriverPools::get().create(properties->location.id);
  return kSuccess;
}

// There is no memory behind the addresses, so every device may use them.
NULL_GPU_API int null_cuMemPoolSetAccess(Handle, void const*, std::size_t) { return kSuccess; }

NULL_GPU_API int null_cuMemPoolDestroy(Handle pool) {
  DriverPools::get().destroy(pool);
  return kSuccess;
}

NULL_GPU_API int null_cuDeviceGetDefaultMemPool(Handle* pool, int device) {
  *pool = DriverPools::get().default_of(device);
  return kSuccess;
}

NULL_GPU_API int null_cuMemPoolSetAttribute(Handle pool, int attribute, void* value) {
  bool const wide = attribute >= kReleaseThreshold && attribute <= kUsedHigh;
  std::uint64_t const number = wide ? *static_cast<std::uint64_t*>(value) : 0;
  return DriverPools::get().set_attribute(pool, attribute, number);
}

NULL_GPU_API int null_cuMemPoolGetAttribute(Handle pool, int attribute, std::uint64_t* value) {
  return DriverPools::get().attribute(pool, attribute, value);
}

NULL_GPU_API int null_cuMemPoolTrimTo(Handle pool, Size keep) {
  DriverPools::get().trim(pool, keep);
  return kSuccess;
}

NULL_GPU_API int null_cuMemAllocFromPoolAsync(Address* address, Size size, Handle pool, Handle) {
  return DriverPools::get().allocate(pool, size, address);
}

NULL_GPU_API int null_cuMemAllocAsync(Address* address, Size size, Handle) {
  return DriverPools::get().allocate(DriverPools::get().default_of(current_device()), size,
                                     address);
}

NULL_GPU_API int null_cuMemFreeAsync(Address address, Handle) {
  return DriverPools::get().release(address);
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
    *static_cast<unsigned*>(out) = 1;  // CU_MEMORYTYPE_HOST
    return kSuccess;
  }
  auto* const number = static_cast<std::uint64_t*>(out);
  auto* const word = static_cast<int*>(out);
  switch (attribute) {
    case kContext:
      *number = 0xC000 + device;
      return kSuccess;
    case kMemoryType:
      *word = 2;  // CU_MEMORYTYPE_DEVICE
      return kSuccess;
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

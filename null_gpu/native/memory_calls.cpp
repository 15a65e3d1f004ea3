// native/memory_calls.cpp: memory of all kinds, copies and pointers, in the runtime and the driver.
// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "null_gpu/native/contexts.hpp"
#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/pools.hpp"
#include "null_gpu/native/streams.hpp"
#include "null_gpu/native/values.hpp"

using namespace allocbench::null_gpu;

namespace {

// Memory of the host that the driver knows: ranges by address.
class HostRanges {
 public:
  void add(void* pointer, Size size) {
    std::lock_guard const lock(mutex_);
    ranges_[reinterpret_cast<Address>(pointer)] = size;
  }

  // The size of the range that begins there, which is then forgotten; 0 without one.
  Size remove(void* pointer) {
    std::lock_guard const lock(mutex_);
    auto const range = ranges_.extract(reinterpret_cast<Address>(pointer));
    return range.empty() ? 0 : range.mapped();
  }

  // The range that an address is in; its size is 0 without one.
  Range range_of(Address address) {
    std::lock_guard const lock(mutex_);
    auto const range = around(ranges_, address);
    return range == ranges_.end() ? Range{} : Range{range->first, range->second};
  }

  bool contains(void const* pointer) {
    return range_of(reinterpret_cast<Address>(pointer)).size != 0;
  }

 private:
  std::mutex mutex_;
  std::map<Address, Size> ranges_;
};

// Pinned memory, also what a program registers as such.
class Pinned : public HostRanges, public Only<Pinned> {
 public:
  // Memory aligned to a page of the host; null if the host has none.
  void* allocate(Size size) {
    constexpr Size kHostPage = 4096;
    void* pointer = nullptr;
    if (posix_memalign(&pointer, kHostPage, std::max<Size>(size, 1)) != 0) return nullptr;
    add(pointer, size);
    return pointer;
  }
};

// Managed memory is the host's: the driver moves it out of a card whose memory others need.
class Managed : public HostRanges, public Only<Managed> {
 public:
  // Its pages come from the host when they are first touched, as on a GPU.
  Status allocate(void** pointer, Size size) {
    if (size == 0) return kInvalidValue;
    void* const pages = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pages == MAP_FAILED) return kOutOfMemory;
    *pointer = pages;
    add(pages, size);
    return kSuccess;
  }

  Status release(Address address) {
    auto* const pages = reinterpret_cast<void*>(address);
    Size const size = remove(pages);
    if (size == 0) return kInvalidValue;
    munmap(pages, size);
    return kSuccess;
  }
};

int host_alloc(void** pointer, Size size) {
  *pointer = Pinned::get().allocate(size);
  return *pointer == nullptr ? kOutOfMemory : kSuccess;
}

int allocate(Address* address, Size size) {
  if (Status const status = Streams::get().check_unsafe()) return status;
  Status const status = allocate_memory(current_device(), size, address);
  if (status == kSuccess) allocated_outside(current_device(), *address, size);
  return status;
}

int release(Address address) {
  if (address == 0) return kSuccess;
  if (Status const status = Streams::get().check_unsafe()) return status;
  int const device = Machine::get().device_of(reinterpret_cast<void*>(address));
  if (device < 0) return Managed::get().release(address);
  released_outside(address);
  if (Machine::get().memory(device).release(address) == kSuccess) return kSuccess;
  return PoolTable::get().release(address);
}

int copy(void* to, void const* from, Size size) {
  Values::get().copy(to, from, size);
  return kSuccess;
}

// What the driver knows of the memory at an address: of the card, pinned, managed, or none.
Range range_of(Address address) {
  auto& machine = Machine::get();
  int const device = machine.device_of(reinterpret_cast<void*>(address));
  if (device < 0) {
    Range const managed = Managed::get().range_of(address);
    return managed.size != 0 ? managed : Pinned::get().range_of(address);
  }
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
  auto* const pointer = reinterpret_cast<void*>(to);
  if (!is_memory(to, size) && !Managed::get().contains(pointer)) return kInvalidValue;
  Values::get().fill(pointer, value, size);
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

// CUpointer_attribute
constexpr int kContext = 1, kMemoryType = 2, kDevicePointer = 3, kHostPointer = 4, kBufferId = 7;
constexpr int kIsManaged = 8, kDeviceOrdinal = 9, kRangeBegin = 11, kRangeSize = 12, kMapped = 13;
constexpr int kPoolHandle = 17;

}  // namespace

// -- the runtime

NULL_GPU_API int null_cudaMalloc(Address* address, Size size) {
  if (Status const status = entered_runtime("cudaMalloc")) return failed(status);
  *address = 0;
  return failed(allocate(address, size));
}

NULL_GPU_GIVES(cudaMallocManaged, (void** pointer, Size size, unsigned),
               failed(entered_runtime("cudaMallocManaged")
                          ?: Managed::get().allocate(pointer, size)))
// The location of a prefetch or an advice has another form in CUDA 13.
NULL_GPU_DOES(cudaMemPrefetchAsync, (), )
NULL_GPU_ALIASES(null_cudaMemPrefetchAsync, null_cudaMemPrefetchAsync_v2, null_cudaMemAdvise,
                 null_cudaMemAdvise_v2, null_cuMemPrefetchAsync, null_cuMemPrefetchAsync_v2,
                 null_cuMemAdvise, null_cuMemAdvise_v2);
NULL_GPU_GIVES(cudaFree, (Address address), failed(entered_runtime("cudaFree") ?: release(address)))

NULL_GPU_API int null_cudaMemGetInfo(Size* free, Size* total) {
  *free = current_memory().free();
  *total = Machine::get().settings().memory;
  return kSuccess;
}

NULL_GPU_GIVES(cudaMallocHost, (void** pointer, Size size),
               failed(entered_runtime("cudaHostAlloc") ?: host_alloc(pointer, size)))
NULL_GPU_ALIASES(null_cudaMallocHost, null_cudaHostAlloc);

NULL_GPU_API int null_cudaFreeHost(void* pointer) {
  Pinned::get().remove(pointer);
  std::free(pointer);
  return kSuccess;
}
NULL_GPU_ALIASES(null_cudaFreeHost, null_cuMemFreeHost);
NULL_GPU_DOES(cudaHostRegister, (void* pointer, Size size, unsigned),
              Pinned::get().add(pointer, size))
NULL_GPU_ALIASES(null_cudaHostRegister, null_cuMemHostRegister_v2);
NULL_GPU_DOES(cudaHostUnregister, (void* pointer), Pinned::get().remove(pointer))
NULL_GPU_ALIASES(null_cudaHostUnregister, null_cuMemHostUnregister);
NULL_GPU_DOES(cudaHostGetDevicePointer, (void** device, void* host, unsigned), *device = host)
NULL_GPU_GIVES(cudaMemcpy, (void* to, void const* from, Size size, int),
               failed(Streams::get().check_unsafe() ?: copy(to, from, size)))
NULL_GPU_GIVES(cudaMemcpyAsync, (void* to, void const* from, Size size, int, Handle stream),
               Streams::get().enqueue(stream) ? kSuccess : copy(to, from, size))
NULL_GPU_GIVES(cudaMemcpyPeerAsync,
               (void* to, int, void const* from, int, Size size, Handle stream),
               null_cudaMemcpyAsync(to, from, size, 0, stream))

NULL_GPU_API int null_cudaMemcpy2DAsync(void* to, Size to_pitch, void const* from, Size from_pitch,
                                        Size width, Size height, int, Handle stream) {
  if (Streams::get().enqueue(stream)) return kSuccess;
  for (Size row = 0; row < height; ++row) {
    Values::get().copy(static_cast<char*>(to) + row * to_pitch,
                       static_cast<char const*>(from) + row * from_pitch, width);
  }
  return kSuccess;
}

NULL_GPU_GIVES(cudaMemcpyToSymbol, (void const*, void const*, Size, Size, int), kSuccess)
NULL_GPU_DOES(cudaMemset, (void* to, int value, Size size), Values::get().fill(to, value, size))

NULL_GPU_API int null_cudaMemsetAsync(void* to, int value, Size size, Handle stream) {
  if (!Streams::get().enqueue(stream)) Values::get().fill(to, value, size);
  return kSuccess;
}

NULL_GPU_API int null_cudaPointerGetAttributes(PointerAttributes* out, void const* pointer) {
  int const device = Machine::get().device_of(pointer);
  void* const same = const_cast<void*>(pointer);
  if (device >= 0)
    *out = {kDevice, device, same, nullptr};
  else if (Pinned::get().contains(pointer))
    *out = {kHost, current_device(), same, same};
  else if (Managed::get().contains(pointer))
    *out = {kManaged, current_device(), same, same};
  else
    *out = {kUnregistered, kNoDevice, nullptr, same};
  return kSuccess;
}

// The handle holds the address, so it is valid in this process and in its forked children.
NULL_GPU_API int null_cudaIpcGetMemHandle(void* handle, void* pointer) {
  std::memset(handle, 0, 64);
  std::memcpy(handle, &pointer, sizeof pointer);
  return kSuccess;
}

struct IpcHandle {
  void* address;
  char rest[56];
};

NULL_GPU_DOES(cudaIpcOpenMemHandle, (void** pointer, IpcHandle handle, unsigned),
              *pointer = handle.address)
NULL_GPU_ALIASES(null_cudaIpcGetMemHandle, null_cudaIpcGetEventHandle);

NULL_GPU_API int null_cudaIpcOpenEventHandle(Handle* event, IpcHandle handle) {
  *event = handle.address;
  Streams::get().open_event(*event);
  return kSuccess;
}

// -- the driver

NULL_GPU_API int null_cuMemAlloc_v2(Address* address, Size size) {
  Status const status = entered_context("cuMemAlloc_v2") ?: Streams::get().check_unsafe();
  return status ?: size == 0 ? kInvalidValue : allocate(address, size);
}

NULL_GPU_API int null_cuMemAllocManaged(void** pointer, Size size, unsigned) {
  Status const status = entered_context("cuMemAllocManaged");
  return status ?: Managed::get().allocate(pointer, size);
}

NULL_GPU_API int null_cuMemFree_v2(Address address) {
  Status const status = entered_context("cuMemFree_v2") ?: Streams::get().check_unsafe();
  return status ?: release(address);
}

NULL_GPU_RETURNS(cuMemGetInfo_v2, entered_context, (Size * free, Size* total),
                 null_cudaMemGetInfo(free, total))
NULL_GPU_RETURNS(cuMemHostAlloc, entered_context, (void** pointer, Size size, unsigned),
                 host_alloc(pointer, size))

// The host and the card have different addresses, so one function copies in all directions.
NULL_GPU_API int null_cuMemcpyDtoD_v2(Address to, Address from, Size size) {
  if (is_beyond(to, size) || is_beyond(from, size)) return kInvalidValue;
  return copy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), size);
}
NULL_GPU_ALIASES(null_cuMemcpyDtoD_v2, null_cuMemcpyHtoD_v2, null_cuMemcpyDtoH_v2);
NULL_GPU_GIVES(cuMemcpyDtoDAsync_v2, (Address to, Address from, Size size, Handle stream),
               Streams::get().enqueue(stream) ? kSuccess : null_cuMemcpyDtoD_v2(to, from, size))
NULL_GPU_ALIASES(null_cuMemcpyDtoDAsync_v2, null_cuMemcpyHtoDAsync_v2, null_cuMemcpyDtoHAsync_v2);
NULL_GPU_RETURNS(cuMemsetD8_v2, entered_context, (Address to, unsigned char value, Size size),
                 set_bytes(to, value, size))
NULL_GPU_RETURNS(cuMemsetD8Async, entered_context,
                 (Address to, unsigned char value, Size size, Handle stream),
                 Streams::get().enqueue(stream) ? kSuccess : set_bytes(to, value, size))
NULL_GPU_RETURNS(cuMemsetD32_v2, entered_context, (Address to, unsigned value, Size count),
                 set_words(to, value, count))
NULL_GPU_RETURNS(cuMemsetD32Async, entered_context,
                 (Address to, unsigned value, Size count, Handle stream),
                 Streams::get().enqueue(stream) ? kSuccess : set_words(to, value, count))
NULL_GPU_CHECKED(cuMemGetAllocationGranularity, entered_driver,
                 (Size * bytes, AllocationProperties const*, int), *bytes = kPage)

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

NULL_GPU_RETURNS(cuMemRelease, entered_context, (unsigned long long handle),
                 virtual_memory().release(handle))
NULL_GPU_RETURNS(cuMemMap, entered_context,
                 (Address address, Size size, Size, unsigned long long handle, unsigned long long),
                 virtual_memory().map(address, size, handle))
NULL_GPU_RETURNS(cuMemUnmap, entered_context, (Address address, Size size),
                 virtual_memory().unmap(address, size))
NULL_GPU_GIVES(cuMemRetainAllocationHandle, (unsigned long long* handle, void* address),
               virtual_memory().retain(reinterpret_cast<Address>(address), handle))

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

NULL_GPU_API int null_cuMemGetAddressRange_v2(Address* begin, Size* size, Address address) {
  Range const known = range_of(address);
  bool const reserved = virtual_memory().reserved_at(known.begin);
  Range const range = reserved ? virtual_memory().accessible(address) : known;
  if (range.size == 0) return kNotFound;
  if (begin != nullptr) *begin = range.begin;
  if (size != nullptr) *size = range.size;
  return kSuccess;
}

NULL_GPU_API int null_cuPointerGetAttribute(void* out, int attribute, Address address) {
  Range const range = range_of(address);
  if (range.size == 0) return kInvalidValue;
  auto* const pointer = reinterpret_cast<void*>(address);
  bool const managed = Managed::get().contains(pointer);
  int const owner = Machine::get().device_of(pointer);
  bool const pinned = owner < 0 && !managed;
  int const device = owner < 0 ? current_device() : owner;
  bool const mapped = virtual_memory().reserved_at(range.begin);
  Handle const pool = PoolTable::get().pool_of(address);
  auto* const number = static_cast<std::uint64_t*>(out);
  auto* const word = static_cast<int*>(out);
  switch (attribute) {
    case kMemoryType: *word = pinned ? 1 : 2; break;  // CU_MEMORYTYPE_HOST, ..._DEVICE
    case kBufferId: *number = address; break;
    case kIsManaged: *word = managed; break;
    case kDeviceOrdinal: *word = device; break;
    case kMapped: *word = 1; break;
    case kPoolHandle: *number = reinterpret_cast<Address>(pool); break;
    case kRangeBegin: *number = range.begin; break;
    case kRangeSize: *number = range.size; break;
    case kContext:  // mapped pages and pools belong to none
      *number = mapped || pool != nullptr ? 0 : kFirstContext + device;
      break;
    case kHostPointer:  // the same address as for kernels
      if (owner >= 0) return kInvalidValue;
      *number = address;
      break;
    case kDevicePointer:
      if (owner >= 0) pointer_given(address);
      *number = address;
      // Mapped pages have one once they are accessible.
      return mapped && !is_memory(address, 1) ? kInvalidValue : kSuccess;
    default: return kInvalidValue;
  }
  return kSuccess;
}

// Like the driver, writes 0 for an attribute that the address does not have.
NULL_GPU_API int null_cuPointerGetAttributes(unsigned count, int const* attributes, void** out,
                                             Address address) {
  for (unsigned index = 0; index < count; ++index)
    if (null_cuPointerGetAttribute(out[index], attributes[index], address) != kSuccess)
      std::memset(out[index], 0, sizeof(int));
  return kSuccess;
}

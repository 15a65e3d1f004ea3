// native/runtime_memory.cpp: device memory, pinned memory, copies, pools.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>

#include "null_gpu/native/contexts.hpp"
#include "null_gpu/native/host_memory.hpp"
#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/pools.hpp"
#include "null_gpu/native/streams.hpp"
#include "null_gpu/native/values.hpp"

using namespace allocbench::null_gpu;

namespace {

Status allocate_from(Handle pool, Size size, Handle stream, void** pointer) {
  Address address = 0;
  Status const status = PoolTable::get().allocate(pool, size, stream, &address);
  *pointer = reinterpret_cast<void*>(address);
  return status;
}

}  // namespace

NULL_GPU_API int null_cudaMalloc(void** pointer, Size size) {
  if (Status const status = entered_runtime("cudaMalloc")) return failed(status);
  *pointer = nullptr;
  if (Status const status = Streams::get().check_unsafe()) return failed(status);
  Address address = 0;
  if (Status const status = allocate_memory(current_device(), size, &address))
    return failed(status);
  *pointer = reinterpret_cast<void*>(address);
  return kSuccess;
}

// Not supported: the host can read managed memory, but not the memory of a null GPU.
NULL_GPU_API int null_cudaMallocManaged(void**, Size, unsigned) { return failed(kNotSupported); }

NULL_GPU_API int null_cudaFree(void* pointer) {
  if (Status const status = entered_runtime("cudaFree")) return failed(status);
  if (pointer == nullptr) return kSuccess;
  if (Status const status = Streams::get().check_unsafe()) return failed(status);
  auto& machine = Machine::get();
  int const device = machine.device_of(pointer);
  if (device < 0) return failed(kInvalidValue);
  auto const address = reinterpret_cast<Address>(pointer);
  if (machine.memory(device).release(address) == kSuccess) return kSuccess;
  return failed(PoolTable::get().release(address));
}

NULL_GPU_API int null_cudaMallocFromPoolAsync(void** pointer, Size size, Handle pool,
                                              Handle stream) {
  if (Status const status = entered_runtime("cudaMallocFromPoolAsync")) return failed(status);
  return failed(allocate_from(pool, size, stream, pointer));
}

NULL_GPU_API int null_cudaMallocAsync(void** pointer, Size size, Handle stream) {
  if (Status const status = entered_runtime("cudaMallocAsync")) return failed(status);
  Handle const pool = PoolTable::get().default_of(current_device());
  return failed(allocate_from(pool, size, stream, pointer));
}

NULL_GPU_API int null_cudaFreeAsync(void* pointer, Handle stream) {
  if (Status const status = entered_runtime("cudaFreeAsync")) return failed(status);
  if (pointer == nullptr) return kSuccess;
  return failed(PoolTable::get().release(reinterpret_cast<Address>(pointer), stream));
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

NULL_GPU_API int null_cudaMemPoolDestroy(Handle pool) {
  return failed(PoolTable::get().destroy(pool));
}

NULL_GPU_API int null_cudaMemPoolGetAttribute(Handle pool, int attribute, std::uint64_t* value) {
  return failed(PoolTable::get().attribute(pool, attribute, value));
}

NULL_GPU_API int null_cudaMemPoolSetAttribute(Handle pool, int attribute, void* value) {
  bool const wide = attribute >= kReleaseThreshold;
  std::uint64_t const number = wide ? *static_cast<std::uint64_t*>(value)
                                    : static_cast<std::uint64_t>(*static_cast<int*>(value));
  return failed(PoolTable::get().set_attribute(pool, attribute, number));
}

NULL_GPU_API int null_cudaMemPoolTrimTo(Handle pool, Size keep) {
  return failed(PoolTable::get().trim(pool, keep));
}

NULL_GPU_API int null_cudaMemPoolSetAccess(Handle pool, AccessDescription const* access,
                                           Size count) {
  return failed(PoolTable::get().set_access(pool, access, count));
}

NULL_GPU_API int null_cudaMemGetInfo(Size* free, Size* total) {
  *free = current_memory().free();
  *total = Machine::get().settings().memory;
  return kSuccess;
}

NULL_GPU_API int null_cudaHostAlloc(void** pointer, Size size, unsigned) {
  if (Status const status = entered_runtime("cudaHostAlloc")) return failed(status);
  *pointer = pinned::allocate(size);
  return *pointer == nullptr ? failed(kOutOfMemory) : kSuccess;
}

NULL_GPU_API int null_cudaMallocHost(void** pointer, Size size) {
  return null_cudaHostAlloc(pointer, size, 0);
}

NULL_GPU_API int null_cudaFreeHost(void* pointer) {
  pinned::release(pointer);
  return kSuccess;
}

NULL_GPU_API int null_cudaHostRegister(void* pointer, Size size, unsigned) {
  pinned::add(pointer, size);
  return kSuccess;
}

NULL_GPU_API int null_cudaHostUnregister(void* pointer) {
  pinned::remove(pointer);
  return kSuccess;
}

NULL_GPU_API int null_cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return kSuccess;
}

NULL_GPU_API int null_cudaMemcpy(void* to, void const* from, Size size, int) {
  if (Status const status = Streams::get().check_unsafe()) return failed(status);
  Values::get().copy(to, from, size);
  return kSuccess;
}

NULL_GPU_API int null_cudaMemcpyAsync(void* to, void const* from, Size size, int, Handle stream) {
  if (!Streams::get().enqueue(stream)) Values::get().copy(to, from, size);
  return kSuccess;
}

NULL_GPU_API int null_cudaMemcpyPeerAsync(void* to, int, void const* from, int, Size size,
                                          Handle stream) {
  return null_cudaMemcpyAsync(to, from, size, 0, stream);
}

NULL_GPU_API int null_cudaMemcpy2DAsync(void* to, Size to_pitch, void const* from, Size from_pitch,
                                        Size width, Size height, int, Handle stream) {
  if (Streams::get().enqueue(stream)) return kSuccess;
  for (Size row = 0; row < height; ++row) {
    Values::get().copy(static_cast<char*>(to) + row * to_pitch,
                       static_cast<char const*>(from) + row * from_pitch, width);
  }
  return kSuccess;
}

NULL_GPU_API int null_cudaMemcpyToSymbol(void const*, void const*, Size, Size, int) {
  return kSuccess;
}

NULL_GPU_API int null_cudaMemset(void* to, int value, Size size) {
  Values::get().fill(to, value, size);
  return kSuccess;
}

NULL_GPU_API int null_cudaMemsetAsync(void* to, int value, Size size, Handle stream) {
  if (!Streams::get().enqueue(stream)) Values::get().fill(to, value, size);
  return kSuccess;
}

NULL_GPU_API int null_cudaPointerGetAttributes(PointerAttributes* out, void const* pointer) {
  int const device = Machine::get().device_of(pointer);
  void* const same = const_cast<void*>(pointer);
  if (device >= 0) {
    *out = {kDevice, device, same, nullptr};
  } else if (pinned::contains(pointer)) {
    *out = {kHost, current_device(), same, same};
  } else {
    *out = {kUnregistered, kNoDevice, nullptr, same};
  }
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

NULL_GPU_API int null_cudaIpcOpenMemHandle(void** pointer, IpcHandle handle, unsigned) {
  *pointer = handle.address;
  return kSuccess;
}

NULL_GPU_API int null_cudaIpcCloseMemHandle(void*) { return kSuccess; }

NULL_GPU_API int null_cudaIpcGetEventHandle(void* handle, Handle event) {
  return null_cudaIpcGetMemHandle(handle, event);
}

NULL_GPU_API int null_cudaIpcOpenEventHandle(Handle* event, IpcHandle handle) {
  *event = handle.address;
  Streams::get().open_event(*event);
  return kSuccess;
}

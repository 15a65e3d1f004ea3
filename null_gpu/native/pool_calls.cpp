// native/pool_calls.cpp: memory pools, in the runtime and in the driver.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/contexts.hpp"
#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/pools.hpp"

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

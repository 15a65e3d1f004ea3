// native/runtime_devices.cpp: devices, errors, and calls whose result is always the same.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "null_gpu/native/contexts.hpp"
#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/pools.hpp"
#include "null_gpu/native/properties.hpp"
#include "null_gpu/native/streams.hpp"

using namespace allocbench::null_gpu;

NULL_GPU_API int null_cudaGetDeviceCount(int* count) {
  Contexts::get().use_runtime();
  *count = Machine::get().count();
  return *count > 0 ? kSuccess : failed(kNoGpu);
}

NULL_GPU_API int null_cudaGetDevice(int* device) {
  Contexts::get().use_runtime();
  *device = current_device();
  return kSuccess;
}

NULL_GPU_API int null_cudaSetDevice(int device) {
  Contexts::get().use_runtime();
  if (!Machine::get().has(device)) return failed(kInvalidDevice);
  set_current_device(device);
  return kSuccess;
}

NULL_GPU_API int null_cudaSetDeviceFlags(unsigned) { return kSuccess; }
NULL_GPU_API int null_cudaDeviceReset() { return kSuccess; }
NULL_GPU_API int null_cudaDeviceSetLimit(int, Size) { return kSuccess; }
NULL_GPU_API int null_cudaDeviceEnablePeerAccess(int, unsigned) { return kSuccess; }
NULL_GPU_API int null_cudaProfilerStart() { return kSuccess; }
NULL_GPU_API int null_cudaProfilerStop() { return kSuccess; }

NULL_GPU_API int null_cudaGetDeviceFlags(unsigned* flags) {
  *flags = 0;
  return kSuccess;
}

NULL_GPU_API int null_cudaDeviceSynchronize() {
  if (Status const status = entered_runtime("cudaDeviceSynchronize")) return failed(status);
  if (Status const status = Streams::get().synchronize_all(current_device())) return failed(status);
  PoolTable::get().synchronize();
  return kSuccess;
}

NULL_GPU_API int null_cudaRuntimeGetVersion(int* version) {
  *version = Machine::get().settings().cuda_version;
  return kSuccess;
}

NULL_GPU_API int null_cudaDriverGetVersion(int* version) {
  return null_cudaRuntimeGetVersion(version);
}

NULL_GPU_API int null_cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer;
  return kSuccess;
}

NULL_GPU_API int null_cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return kSuccess;
}

NULL_GPU_API int null_cudaGetDeviceProperties(void* properties, int device) {
  if (!Machine::get().has(device)) return failed(kInvalidDevice);
  write_properties(properties, device, Layout::kCuda13);
  return kSuccess;
}

NULL_GPU_API int null_cudaGetDeviceProperties_v2(void* properties, int device) {
  if (!Machine::get().has(device)) return failed(kInvalidDevice);
  write_properties(properties, device, Layout::kCuda12);
  return kSuccess;
}

NULL_GPU_API int null_cudaDeviceGetAttribute(int* value, int number, int device) {
  if (!Machine::get().has(device)) return failed(kInvalidDevice);
  *value = attribute(number, device);
  return kSuccess;
}

NULL_GPU_API int null_cudaDeviceGetPCIBusId(char* id, int size, int device) {
  if (!Machine::get().has(device)) return failed(kInvalidDevice);
  write_bus_id(id, size, device);
  return kSuccess;
}

NULL_GPU_API int null_cudaDeviceGetByPCIBusId(int* device, char const* id) {
  char own[16];
  for (*device = 0; *device < Machine::get().count(); ++*device) {
    write_bus_id(own, sizeof own, *device);
    if (std::strcmp(id, own) == 0) return kSuccess;
  }
  return failed(kInvalidValue);
}

NULL_GPU_API int null_cudaGetLastError() { return take_last_error(); }
NULL_GPU_API int null_cudaPeekAtLastError() { return last_error(); }

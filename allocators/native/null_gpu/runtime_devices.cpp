// null_gpu/runtime_devices.cpp: devices, errors, and calls whose result is always the same.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "null_gpu/machine.hpp"
#include "null_gpu/pools.hpp"
#include "null_gpu/properties.hpp"
#include "null_gpu/streams.hpp"

using namespace allocbench::null_gpu;

NULL_GPU_API int null_cudaGetDeviceCount(int* count) {
  *count = Machine::get().count();
  return *count > 0 ? kSuccess : failed(100);  // cudaErrorNoDevice
}

NULL_GPU_API int null_cudaGetDevice(int* device) {
  *device = current_device();
  return kSuccess;
}

NULL_GPU_API int null_cudaSetDevice(int device) {
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
  if (Status const status = entered("cudaDeviceSynchronize")) return failed(status);
  if (Status const status = Streams::get().synchronize_all()) return failed(status);
  DriverPools::get().synchronize();
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

NULL_GPU_API char const* null_cudaGetErrorString(int status) {
  switch (status) {
    case kSuccess:
      return "no error";
    case kInvalidValue:
      return "invalid argument";
    case kOutOfMemory:
      return "out of memory";
    case 100:
      return "no CUDA-capable device is detected";
    case kInvalidDevice:
      return "invalid device ordinal";
    case kInvalidHandle:
      return "invalid resource handle";
    case kNotFound:
      return "named symbol not found";
    case kNotSupported:
      return "operation not supported by the null GPU";
    case kCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case kCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    default:
      return "unknown error of the null GPU";
  }
}

NULL_GPU_API char const* null_cudaGetErrorName(int status) {
  switch (status) {
    case kSuccess:
      return "cudaSuccess";
    case kInvalidValue:
      return "cudaErrorInvalidValue";
    case kOutOfMemory:
      return "cudaErrorMemoryAllocation";
    case 100:
      return "cudaErrorNoDevice";
    case kInvalidDevice:
      return "cudaErrorInvalidDevice";
    case kInvalidHandle:
      return "cudaErrorInvalidResourceHandle";
    case kNotFound:
      return "cudaErrorSymbolNotFound";
    case kNotSupported:
      return "cudaErrorNotSupported";
    case kCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case kCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    default:
      return "cudaErrorUnknown";
  }
}

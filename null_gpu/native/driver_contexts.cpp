// native/driver_contexts.cpp: the driver's devices and contexts.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <vector>

#include "null_gpu/native/contexts.hpp"
#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/properties.hpp"
#include "null_gpu/native/runtime.hpp"
#include "null_gpu/native/thread_object.hpp"

using namespace allocbench::null_gpu;

namespace {

struct ContextsBelow : std::vector<Handle> {};  // the current one, on the stack

Handle context_of(int device) { return reinterpret_cast<Handle>(kFirstContext + device); }
int device_of_context(Handle context) {
  return static_cast<int>(reinterpret_cast<Address>(context) - kFirstContext);
}

Handle current_context() { return has_context() ? context_of(current_device()) : nullptr; }

bool exists(Handle context) {
  int const device = device_of_context(context);
  return Machine::get().has(device) && Contexts::get().active(device);
}

void make_current(Handle context) {
  if (context == nullptr)
    leave_context();
  else
    set_current_device(device_of_context(context));
}

}  // namespace

NULL_GPU_API int null_cuInit(unsigned) {
  Contexts::get().initialize();
  if (Status const status = entered_driver("cuInit")) return status;
  return Machine::get().count() > 0 ? kSuccess : kNoGpu;
}

NULL_GPU_API int null_cuDriverGetVersion(int* version) {
  if (Status const status = entered("cuDriverGetVersion")) return status;
  return null_cudaRuntimeGetVersion(version);
}

NULL_GPU_API int null_cuDeviceGetCount(int* count) {
  if (Status const status = entered_driver("cuDeviceGetCount")) return status;
  *count = Machine::get().count();
  return kSuccess;
}

NULL_GPU_API int null_cuDeviceGet(int* device, int ordinal) {
  if (Status const status = entered_driver("cuDeviceGet")) return status;
  if (!Machine::get().has(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

NULL_GPU_API int null_cuDeviceGetName(char* name, int size, int) {
  if (Status const status = entered_driver("cuDeviceGetName")) return status;
  std::snprintf(name, size, "%s", Machine::get().settings().name.c_str());
  return kSuccess;
}

NULL_GPU_API int null_cuDeviceGetUuid(void* uuid, int device) {
  if (Status const status = entered_driver("cuDeviceGetUuid")) return status;
  write_uuid(uuid, device);
  return kSuccess;
}

NULL_GPU_API int null_cuDeviceGetUuid_v2(void* uuid, int device) {
  return null_cuDeviceGetUuid(uuid, device);
}

NULL_GPU_API int null_cuDeviceCanAccessPeer(int* can, int device, int peer) {
  if (Status const status = entered_driver("cuDeviceCanAccessPeer")) return status;
  return null_cudaDeviceCanAccessPeer(can, device, peer);
}

NULL_GPU_API int null_cuDeviceGetPCIBusId(char* id, int size, int device) {
  return null_cudaDeviceGetPCIBusId(id, size, device);
}

NULL_GPU_API int null_cuDeviceTotalMem_v2(Size* bytes, int) {
  if (Status const status = entered_driver("cuDeviceTotalMem_v2")) return status;
  *bytes = Machine::get().settings().memory;
  return kSuccess;
}

NULL_GPU_API int null_cuDeviceGetAttribute(int* value, int number, int device) {
  if (Status const status = entered_driver("cuDeviceGetAttribute")) return status;
  return null_cudaDeviceGetAttribute(value, number, device);
}

NULL_GPU_API int null_cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  if (Status const status = entered_driver("cuDevicePrimaryCtxGetState")) return status;
  if (!Machine::get().has(device)) return kInvalidDevice;
  *flags = 0;
  *active = Contexts::get().active(device);
  return kSuccess;
}

NULL_GPU_API int null_cuDevicePrimaryCtxRetain(Handle* context, int device) {
  if (Status const status = entered_driver("cuDevicePrimaryCtxRetain")) return status;
  if (!Machine::get().has(device)) return kInvalidDevice;
  Contexts::get().retain(device);
  *context = context_of(device);
  return kSuccess;
}

NULL_GPU_API int null_cuDevicePrimaryCtxRelease_v2(int device) {
  if (Status const status = entered_driver("cuDevicePrimaryCtxRelease_v2")) return status;
  return Machine::get().has(device) ? Contexts::get().release(device) : kInvalidDevice;
}

NULL_GPU_API int null_cuCtxGetCurrent(Handle* context) {
  if (Status const status = entered_driver("cuCtxGetCurrent")) return status;
  *context = current_context();
  return kSuccess;
}

NULL_GPU_API int null_cuCtxSetCurrent(Handle context) {
  if (Status const status = entered_driver("cuCtxSetCurrent")) return status;
  if (context != nullptr && !exists(context)) return kInvalidContext;
  make_current(context);
  return kSuccess;
}

NULL_GPU_API int null_cuCtxPushCurrent_v2(Handle context) {
  if (Status const status = entered_driver("cuCtxPushCurrent_v2")) return status;
  if (!exists(context)) return kInvalidContext;
  ThreadObject<ContextsBelow>::get().push_back(current_context());
  make_current(context);
  return kSuccess;
}

NULL_GPU_API int null_cuCtxPopCurrent_v2(Handle* context) {
  if (Status const status = entered_context("cuCtxPopCurrent_v2")) return status;
  if (context != nullptr) *context = current_context();
  auto& pushed = ThreadObject<ContextsBelow>::get();
  make_current(pushed.empty() ? nullptr : pushed.back());
  if (!pushed.empty()) pushed.pop_back();
  return kSuccess;
}

NULL_GPU_API int null_cuCtxGetDevice(int* device) {
  if (Status const status = entered_context("cuCtxGetDevice")) return status;
  *device = current_device();
  return kSuccess;
}

NULL_GPU_API int null_cuCtxSetLimit(int, Size) { return kSuccess; }

NULL_GPU_API int null_cuCtxGetLimit(Size* size, int) {
  *size = 0;
  return kSuccess;
}

NULL_GPU_API int null_cuGetExportTable(void const**, void const*) { return kNotFound; }

// null_gpu/driver_contexts.cpp: the driver's devices, contexts, streams, and its list of symbols.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <cstdio>
#include <string>
#include <vector>

#include "null_gpu/machine.hpp"
#include "null_gpu/pools.hpp"
#include "null_gpu/properties.hpp"
#include "null_gpu/runtime.hpp"
#include "null_gpu/streams.hpp"
#include "null_gpu/thread_object.hpp"

using namespace allocbench::null_gpu;

namespace {

struct ContextsBelow : std::vector<Handle> {};  // the current one, on the stack

Handle context_of(int device) { return reinterpret_cast<Handle>(Address{0xC000} + device); }
int device_of_context(Handle context) {
  return static_cast<int>(reinterpret_cast<Address>(context) - 0xC000);
}

Handle current_context() { return has_context() ? context_of(current_device()) : nullptr; }

void make_current(Handle context) {
  if (context == nullptr)
    leave_context();
  else
    set_current_device(device_of_context(context));
}

// The function of a symbol, which callers name without the suffix of its newest version.
void* symbol(std::string const& name) {
  static void* const self = [] {
    Dl_info info;
    dladdr(reinterpret_cast<void*>(&context_of), &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  for (char const* suffix : {"_v3", "_v2", ""}) {
    if (void* const function = dlsym(self, ("null_" + name + suffix).c_str())) return function;
  }
  // The stand-in for the driver has the other functions; they print their names when called.
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver == nullptr ? nullptr : dlsym(driver, name.c_str());
}

}  // namespace

NULL_GPU_API int null_cuInit(unsigned) {
  return Machine::get().count() > 0 ? kSuccess : 100;  // CUDA_ERROR_NO_DEVICE
}

NULL_GPU_API int null_cuDriverGetVersion(int* version) {
  return null_cudaRuntimeGetVersion(version);
}

NULL_GPU_API int null_cuDeviceGetCount(int* count) {
  *count = Machine::get().count();
  return kSuccess;
}

NULL_GPU_API int null_cuDeviceGet(int* device, int ordinal) {
  if (!Machine::get().has(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

NULL_GPU_API int null_cuDeviceGetName(char* name, int size, int) {
  std::snprintf(name, size, "%s", Machine::get().settings().name.c_str());
  return kSuccess;
}

NULL_GPU_API int null_cuDeviceGetUuid(void* uuid, int device) {
  write_uuid(uuid, device);
  return kSuccess;
}

NULL_GPU_API int null_cuDeviceCanAccessPeer(int* can, int device, int peer) {
  return null_cudaDeviceCanAccessPeer(can, device, peer);
}

NULL_GPU_API int null_cuDeviceGetUuid_v2(void* uuid, int device) {
  write_uuid(uuid, device);
  return kSuccess;
}

NULL_GPU_API int null_cuDeviceGetPCIBusId(char* id, int size, int device) {
  return null_cudaDeviceGetPCIBusId(id, size, device);
}

NULL_GPU_API int null_cuDeviceTotalMem_v2(Size* bytes, int) {
  *bytes = Machine::get().settings().memory;
  return kSuccess;
}

NULL_GPU_API int null_cuDeviceGetAttribute(int* value, int number, int device) {
  return null_cudaDeviceGetAttribute(value, number, device);
}

NULL_GPU_API int null_cuDevicePrimaryCtxGetState(int, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return kSuccess;
}

NULL_GPU_API int null_cuDevicePrimaryCtxRetain(Handle* context, int device) {
  if (!Machine::get().has(device)) return kInvalidDevice;
  *context = context_of(device);
  return kSuccess;
}

NULL_GPU_API int null_cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }

NULL_GPU_API int null_cuCtxGetCurrent(Handle* context) {
  *context = current_context();
  return kSuccess;
}

NULL_GPU_API int null_cuCtxSetCurrent(Handle context) {
  make_current(context);
  return kSuccess;
}

NULL_GPU_API int null_cuCtxPushCurrent_v2(Handle context) {
  ThreadObject<ContextsBelow>::get().push_back(current_context());
  make_current(context);
  return kSuccess;
}

NULL_GPU_API int null_cuCtxPopCurrent_v2(Handle* context) {
  if (!has_context()) return 201;  // CUDA_ERROR_INVALID_CONTEXT
  if (context != nullptr) *context = current_context();
  auto& pushed = ThreadObject<ContextsBelow>::get();
  make_current(pushed.empty() ? nullptr : pushed.back());
  if (!pushed.empty()) pushed.pop_back();
  return kSuccess;
}

NULL_GPU_API int null_cuCtxGetDevice(int* device) {
  *device = current_device();
  return kSuccess;
}

NULL_GPU_API int null_cuCtxSetLimit(int, Size) { return kSuccess; }

NULL_GPU_API int null_cuCtxGetLimit(Size* size, int) {
  *size = 0;
  return kSuccess;
}

NULL_GPU_API int null_cuCtxSynchronize() { return null_cudaDeviceSynchronize(); }

NULL_GPU_API int null_cuStreamGetCtx(Handle stream, Handle* context) {
  *context = context_of(device_of(stream));
  return kSuccess;
}

NULL_GPU_API int null_cuStreamCreate(Handle* stream, unsigned) {
  *stream = Streams::get().create(0);
  return kSuccess;
}

NULL_GPU_API int null_cuStreamDestroy_v2(Handle) { return kSuccess; }
NULL_GPU_API int null_cuStreamQuery(Handle stream) { return Streams::get().synchronize(stream); }
NULL_GPU_API int null_cuStreamSynchronize(Handle stream) {
  return null_cudaStreamSynchronize(stream);
}

NULL_GPU_API int null_cuStreamIsCapturing(Handle stream, int* status) {
  return null_cudaStreamIsCapturing(stream, status);
}

NULL_GPU_API int null_cuStreamWaitEvent(Handle stream, Handle event, unsigned) {
  return Streams::get().wait(stream, event);
}

NULL_GPU_API int null_cuThreadExchangeStreamCaptureMode(int* mode) {
  exchange_capture_mode(mode);
  return kSuccess;
}

NULL_GPU_API int null_cuEventCreate(Handle* event, unsigned) {
  *event = Machine::get().new_handle();
  return kSuccess;
}

NULL_GPU_API int null_cuEventRecord(Handle event, Handle stream) {
  return Streams::get().record(event, stream);
}

NULL_GPU_API int null_cuEventQuery(Handle) { return kSuccess; }
NULL_GPU_API int null_cuEventSynchronize(Handle) { return kSuccess; }

NULL_GPU_API int null_cuEventDestroy_v2(Handle event) {
  Streams::get().destroy_event(event);
  return kSuccess;
}

NULL_GPU_API int null_cuGetErrorString(int status, char const** text) {
  *text = null_cudaGetErrorString(status);
  return kSuccess;
}

NULL_GPU_API int null_cuGetErrorName(int status, char const** name) {
  *name = null_cudaGetErrorName(status);
  return kSuccess;
}

// `status` says whether the symbol exists; the call itself succeeds, as in CUDA's runtime.
NULL_GPU_API int null_cudaGetDriverEntryPoint(char const* name, void** function, unsigned long long,
                                              int* status) {
  *function = symbol(name);
  if (status != nullptr) *status = *function == nullptr;
  if (*function == nullptr) null_missing(name, kNotFound);
  return kSuccess;
}

NULL_GPU_API int null_cudaGetDriverEntryPointByVersion(char const* name, void** function, unsigned,
                                                       unsigned long long flags, int* status) {
  return null_cudaGetDriverEntryPoint(name, function, flags, status);
}

NULL_GPU_API int null_cuGetProcAddress_v2(char const* name, void** function, int,
                                          unsigned long long, int* status) {
  *function = symbol(name);
  if (status != nullptr) *status = *function == nullptr;
  return *function == nullptr ? null_missing(name, kNotFound) : kSuccess;
}

NULL_GPU_API int null_cuGetExportTable(void const**, void const*) { return kNotFound; }

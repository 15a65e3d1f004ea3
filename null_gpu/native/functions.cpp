// native/functions.cpp: functions without an implementation, those of the driver by name, and the
// names and texts of errors.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <mutex>
#include <set>
#include <string>

#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/values.hpp"

using namespace allocbench::null_gpu;

// Reports a missing function on standard error, once for each name, and returns `status`.
NULL_GPU_API int null_missing(char const* name, int status) {
  static std::mutex mutex;
  static auto* reported = new std::set<std::string>;
  std::lock_guard const lock(mutex);
  if (reported->insert(name).second) {
    std::fprintf(stderr, "allocbench: the null GPU does not implement %s: it returns error %d\n",
                 name, status);
  }
  return status;
}

// Stands in for functions that only compute; counts as a kernel launch.
NULL_GPU_DOES(work, (), launched(nullptr))

// Stands in for functions without any effect.
NULL_GPU_API int null_harmless() { return kSuccess; }

// Returns an error silently. For libraries that programs call to find out whether they work.
NULL_GPU_API int null_refused(char const*, int status) { return status; }

namespace {

// The function of a symbol, which callers name without the suffix of its newest version.
void* symbol(std::string const& name) {
  static void* const self = [] {
    Dl_info info;
    dladdr(reinterpret_cast<void*>(&null_missing), &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  for (char const* suffix : {"_v3", "_v2", ""})
    if (void* const function = dlsym(self, ("null_" + name + suffix).c_str())) return function;
  // The stand-in for the driver has the other functions; they print their names when called.
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver == nullptr ? nullptr : dlsym(driver, name.c_str());
}

}  // namespace

NULL_GPU_API int null_cuGetProcAddress_v2(char const* name, void** function, int,
                                          unsigned long long, int* status) {
  *function = symbol(name);
  if (status != nullptr) *status = *function == nullptr;
  if (*function != nullptr) return kSuccess;
  return *name == '\0' ? kNotFound : null_missing(name, kNotFound);
}

// Of CUDA 11, without the status. Libraries find it by its name in the driver's library.
NULL_GPU_GIVES(cuGetProcAddress,
               (char const* name, void** function, int version, unsigned long long flags),
               null_cuGetProcAddress_v2(name, function, version, flags, nullptr))

// `status` says whether the symbol exists; the call itself succeeds, as in CUDA's runtime.
NULL_GPU_DOES(cudaGetDriverEntryPoint,
              (char const* name, void** function, unsigned long long flags, int* status),
              null_cuGetProcAddress_v2(name, function, 0, flags, status))
NULL_GPU_GIVES(cudaGetDriverEntryPointByVersion,
               (char const* name, void** function, unsigned, unsigned long long flags, int* status),
               null_cudaGetDriverEntryPoint(name, function, flags, status))

// -- errors

namespace {

struct Error {
  Status status;
  char const* runtime;
  char const* driver;
  char const* text;
};

constexpr Error kErrors[] = {
    {kSuccess, "cudaSuccess", "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "cudaErrorMemoryAllocation", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "cudaErrorInitializationError", "CUDA_ERROR_NOT_INITIALIZED",
     "initialization error"},
    {kDeinitialized, "cudaErrorCudartUnloading", "CUDA_ERROR_DEINITIALIZED",
     "driver shutting down"},
    {kNoGpu, "cudaErrorNoDevice", "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "cudaErrorInvalidDevice", "CUDA_ERROR_INVALID_DEVICE",
     "invalid device ordinal"},
    {kInvalidContext, "cudaErrorDeviceUninitialized", "CUDA_ERROR_INVALID_CONTEXT",
     "invalid device context"},
    {kInvalidHandle, "cudaErrorInvalidResourceHandle", "CUDA_ERROR_INVALID_HANDLE",
     "invalid resource handle"},
    {kNotFound, "cudaErrorSymbolNotFound", "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kNotReady, "cudaErrorNotReady", "CUDA_ERROR_NOT_READY", "device not ready"},
    {kIllegalAddress, "cudaErrorIllegalAddress", "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {kNotSupported, "cudaErrorNotSupported", "CUDA_ERROR_NOT_SUPPORTED",
     "operation not supported by the null GPU"},
    {kCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {kCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {kIllegalState, "cudaErrorIllegalState", "CUDA_ERROR_ILLEGAL_STATE",
     "the operation cannot be performed in the present state"},
    {kWrongThread, "cudaErrorStreamCaptureWrongThread", "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {kCapturedEvent, "cudaErrorCapturedEvent", "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
};

Error const* find(Status status) {
  auto const* const error = std::ranges::find(kErrors, status, &Error::status);
  return error == std::end(kErrors) ? nullptr : error;
}

int write(char const** out, Status status, char const* Error::* text) {
  Error const* const error = find(status);
  *out = error == nullptr ? nullptr : error->*text;
  return error == nullptr ? kInvalidValue : kSuccess;
}

}  // namespace

NULL_GPU_API char const* null_cudaGetErrorName(int status) {
  Error const* const error = find(status);
  return error == nullptr ? "cudaErrorUnknown" : error->runtime;
}

NULL_GPU_API char const* null_cudaGetErrorString(int status) {
  Error const* const error = find(status);
  return error == nullptr ? "unknown error of the null GPU" : error->text;
}

NULL_GPU_GIVES(cuGetErrorName, (int status, char const** name), write(name, status, &Error::driver))
NULL_GPU_GIVES(cuGetErrorString, (int status, char const** text), write(text, status, &Error::text))

// The null GPU logs nothing, so it never calls the function.
NULL_GPU_DOES(cuLogsRegisterCallback,
              (void (*)(void*, int, char*, Size), void*, Handle* registered),
              *registered = Machine::get().new_handle())

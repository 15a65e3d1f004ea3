// native/errors.cpp: the names and texts of errors, in the runtime and in the driver; its log.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/runtime.hpp"

using namespace allocbench::null_gpu;

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

}  // namespace

NULL_GPU_API char const* null_cudaGetErrorName(int status) {
  Error const* const error = find(status);
  return error == nullptr ? "cudaErrorUnknown" : error->runtime;
}

NULL_GPU_API char const* null_cudaGetErrorString(int status) {
  Error const* const error = find(status);
  return error == nullptr ? "unknown error of the null GPU" : error->text;
}

NULL_GPU_API int null_cuGetErrorName(int status, char const** name) {
  Error const* const error = find(status);
  *name = error == nullptr ? nullptr : error->driver;
  return error == nullptr ? kInvalidValue : kSuccess;
}

NULL_GPU_API int null_cuGetErrorString(int status, char const** text) {
  Error const* const error = find(status);
  *text = error == nullptr ? nullptr : error->text;
  return error == nullptr ? kInvalidValue : kSuccess;
}

// The null GPU logs nothing, so it never calls the function.
NULL_GPU_API int null_cuLogsRegisterCallback(void (*)(void*, int, char*, Size), void*,
                                             Handle* registered) {
  *registered = Machine::get().new_handle();
  return kSuccess;
}

NULL_GPU_API int null_cuLogsUnregisterCallback(Handle) { return kSuccess; }

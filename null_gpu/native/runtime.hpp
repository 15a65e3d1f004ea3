// native/runtime.hpp: runtime functions to which the functions of the driver forward.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "null_gpu/native/api.hpp"

using allocbench::null_gpu::Handle;

NULL_GPU_API int null_cudaDeviceGetAttribute(int* value, int number, int device);
NULL_GPU_API int null_cudaDeviceGetPCIBusId(char* id, int size, int device);
NULL_GPU_API int null_cudaDeviceCanAccessPeer(int* can, int device, int peer);
NULL_GPU_API int null_cudaRuntimeGetVersion(int* version);

// Reports a missing function on standard error, once for each name, and returns `status`.
NULL_GPU_API int null_missing(char const* name, int status);
// Stands in for functions that only compute; counts as a kernel launch.
NULL_GPU_API int null_work();
// Stands in for functions without any effect.
NULL_GPU_API int null_harmless();

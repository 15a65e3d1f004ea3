// null_gpu/runtime.hpp: functions of the runtime that the driver's counterparts forward to.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "null_gpu/api.hpp"

using allocbench::null_gpu::Handle;

NULL_GPU_API int null_cudaDeviceGetAttribute(int* value, int number, int device);
NULL_GPU_API int null_cudaDeviceGetPCIBusId(char* id, int size, int device);
NULL_GPU_API int null_cudaDeviceCanAccessPeer(int* can, int device, int peer);
NULL_GPU_API int null_cudaDeviceSynchronize();
NULL_GPU_API char const* null_cudaGetErrorName(int status);
NULL_GPU_API char const* null_cudaGetErrorString(int status);
NULL_GPU_API int null_cudaRuntimeGetVersion(int* version);
NULL_GPU_API int null_cudaStreamIsCapturing(Handle stream, int* status);
NULL_GPU_API int null_cudaStreamSynchronize(Handle stream);

// Says once on standard error that a function is not there, and returns the status.
NULL_GPU_API int null_missing(char const* name, int status);
// A function that only computes: as if it launched a kernel.
NULL_GPU_API int null_work();
NULL_GPU_API int null_harmless();

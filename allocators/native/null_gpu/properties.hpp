// null_gpu/properties.hpp: what a device says of itself.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "null_gpu/api.hpp"

namespace allocbench::null_gpu {

// The value of a cudaDeviceAttr, which has the number of its CUdevice_attribute; 0 when unknown.
int attribute(int number, int device);

// Fill a cudaDeviceProp. It lost some members with CUDA 13, and others moved.
enum class Layout { kCuda12, kCuda13 };
void write_properties(void* out, int device, Layout layout);

// 16 bytes which tell the cards of a machine apart, and "0000:01:00.0".
void write_uuid(void* out, int device);
void write_bus_id(char* out, int size, int device);

}  // namespace allocbench::null_gpu

// native/properties.hpp: the attributes and properties of a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu {

// The value of a cudaDeviceAttr, whose number equals its CUdevice_attribute; 0 if it is unknown.
int attribute(int number, int device);

// Fills a cudaDeviceProp. CUDA 13 removed some of its members and moved others.
enum class Layout { kCuda12, kCuda13 };
void write_properties(void* out, int device, Layout layout);

// A unique id of 16 bytes for each card, and a PCI bus id such as "0000:01:00.0".
void write_uuid(void* out, int device);
void write_bus_id(char* out, int size, int device);

}  // namespace allocbench::null_gpu

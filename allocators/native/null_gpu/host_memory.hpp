// null_gpu/host_memory.hpp: the pinned memory of the host.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "null_gpu/api.hpp"

namespace allocbench::null_gpu::pinned {

// Memory in whole pages of the host (null when the host refuses), and the memory that the program
// registers as pinned.
void* allocate(Size size);
void release(void* pointer);
void add(void* pointer, Size size);
void remove(void* pointer);
bool contains(void const* pointer);

}  // namespace allocbench::null_gpu::pinned

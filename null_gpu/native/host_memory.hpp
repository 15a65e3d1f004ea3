// native/host_memory.hpp: the pinned memory of the host.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu::pinned {

// Memory aligned to a page of the host, which counts as pinned; null if the host has none.
void* allocate(Size size);
void release(void* pointer);  // of `allocate`

// Memory of the program that it registers as pinned.
void add(void* pointer, Size size);
void remove(void* pointer);

bool contains(void const* pointer);  // true inside pinned memory

}  // namespace allocbench::null_gpu::pinned

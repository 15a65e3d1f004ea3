// native/driver_memory.hpp: the virtual memory of this process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "null_gpu/native/virtual_memory.hpp"

namespace allocbench::null_gpu {

VirtualMemory& virtual_memory();

}  // namespace allocbench::null_gpu

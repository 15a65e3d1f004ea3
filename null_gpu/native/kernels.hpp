// native/kernels.hpp: the effects of a kernel launch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu {

// Records work on a stream that may have written to any device memory.
void launched(Handle stream);

}  // namespace allocbench::null_gpu

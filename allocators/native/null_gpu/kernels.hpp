// null_gpu/kernels.hpp: what follows from the launch of a kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "null_gpu/api.hpp"

namespace allocbench::null_gpu {

// Work was put on a stream which may have written anywhere.
void launched(Handle stream);

}  // namespace allocbench::null_gpu

// native/kernels.hpp: the effects of a kernel launch.
// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's operators say which tensors they change. Kernels of other libraries do not.
#pragma once

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu {

// Records work on a stream that may have written to any device memory.
void launched(Handle stream);
// A program asks for the device's address of memory, as Triton does for each argument of a kernel.
void pointer_given(Address address);

}  // namespace allocbench::null_gpu

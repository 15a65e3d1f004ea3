// native/hidden_writes.hpp: work on the GPU of which PyTorch does not know what it writes.
// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's operators say which tensors they change. Kernels of other libraries do not.
#pragma once

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu {

// A handle for the kernels of a library: `binary` is an address within the library.
void** handle_for_kernels(void const* binary);
// A kernel of the library that has this handle.
void add_kernel(void** handle, void const* function);
// Forgets all values if the kernel is not PyTorch's own.
void on_launch(void const* function);
// A program asks for the device's address of memory, as Triton does for each argument of a kernel.
void pointer_given(Address address);
// Outside of PyTorch's operators, a kernel may write to every address that this thread was given
// since the last launch: forgets what is there. If no address was given, forgets all values.
void on_driver_launch();

}  // namespace allocbench::null_gpu

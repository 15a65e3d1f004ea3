// native/hidden_writes.hpp: work on the GPU of which PyTorch does not know what it writes.
// SPDX-License-Identifier: Apache-2.0
//
// PyTorch counts how often its operators change a tensor. Kernels of other libraries and captured
// graphs change tensors without being counted.
#pragma once

namespace allocbench::null_gpu {

// Counts one such write of unknown memory.
void hidden_write();

// A handle for the kernels of a library: `binary` is an address within the library.
void** handle_for_kernels(void const* binary);
// A kernel of the library that has this handle.
void add_kernel(void** handle, void const* function);
// Counts a write if the kernel is not PyTorch's own.
void on_launch(void const* function);

}  // namespace allocbench::null_gpu

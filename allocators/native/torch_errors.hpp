// torch_errors.hpp: out of memory, as PyTorch says it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace allocbench {

// Throws what becomes a torch.OutOfMemoryError; when this PyTorch's cannot be made, an exception
// that becomes its base class, a RuntimeError. The message says that CUDA is out of memory, which
// programs look for.
[[noreturn]] void throw_to_torch(std::string const& message);

}  // namespace allocbench

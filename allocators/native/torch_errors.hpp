// torch_errors.hpp: reporting out-of-memory errors to PyTorch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace allocbench {

// Throws the C++ exception that becomes torch.OutOfMemoryError in Python. If this version of
// PyTorch does not allow it, throws one that becomes its base class, RuntimeError. The message says
// that CUDA is out of memory, because programs search for these words.
[[noreturn]] void throw_to_torch(std::string const& message);

}  // namespace allocbench

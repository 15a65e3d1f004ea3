// torch_errors.hpp: reporting out-of-memory errors to PyTorch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace allocbench {

// Throws the C++ exception that PyTorch converts to torch.OutOfMemoryError. If this version of
// PyTorch does not allow it, throws one that becomes a RuntimeError, the base class. The message
// begins with "CUDA out of memory", because programs search for these words.
[[noreturn]] void throw_to_torch(std::string const& message);

// Whether this process has loaded PyTorch. No other caller expects exceptions of a C function.
bool torch_is_loaded();

// c10::SourceLocation
struct SourceLocation {
  char const* function;
  char const* file;
  std::uint32_t line;
};

// Calls `constructor`, an Error(SourceLocation, std::string) with the old string, for the memory at
// `self`. False if this library was built without the old string.
bool construct_with_old_string(void* constructor, void* self, SourceLocation where,
                               char const* text);

}  // namespace allocbench

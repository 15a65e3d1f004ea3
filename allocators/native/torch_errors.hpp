// torch_errors.hpp: what is thrown to PyTorch, for both kinds of std::string.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace allocbench {

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

// torch_errors_old_string.cpp: errors for a PyTorch with the std::string of before C++11.
// SPDX-License-Identifier: Apache-2.0
//
// libstdc++ has both kinds of std::string; this macro, defined before any header, selects the old
// one. Therefore only plain types may pass between this file and others.
#define _GLIBCXX_USE_CXX11_ABI 0
#include <string>

#include "torch_errors.hpp"

namespace allocbench {

bool construct_with_old_string(void* constructor, void* self, SourceLocation where,
                               char const* text) {
#if defined(_GLIBCXX_USE_DUAL_ABI) && _GLIBCXX_USE_DUAL_ABI
  using Constructor = void (*)(void* self, SourceLocation, std::string);
  reinterpret_cast<Constructor>(constructor)(self, where, text);
  return true;
#else
  (void)constructor, (void)self, (void)where, (void)text;
  return false;
#endif
}

}  // namespace allocbench

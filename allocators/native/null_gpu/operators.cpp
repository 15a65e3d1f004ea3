// null_gpu/operators.cpp: the PyTorch operators on the call stack.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <execinfo.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "null_gpu/api.hpp"

// Writes the names of the operators on this thread's stack into `out`, innermost first, each
// followed by a space, cut to `size` bytes. PyTorch calls an operator through
// at::_ops::NAME::call() or redispatch(), whose mangled name is
// _ZN2at4_ops<length>NAME<length>call...
NULL_GPU_API void null_operators(char* out, int size) {
  constexpr std::string_view kPrefix = "_ZN2at4_ops";
  constexpr int kFrames = 128;
  void* frames[kFrames];
  int const count = backtrace(frames, kFrames);
  std::string names, last;
  for (int frame = 0; frame < count; ++frame) {
    Dl_info info;
    if (dladdr(frames[frame], &info) == 0 || info.dli_sname == nullptr) continue;
    std::string_view const symbol = info.dli_sname;
    if (!symbol.starts_with(kPrefix)) continue;
    char* begin = nullptr;
    auto const length = std::strtoul(info.dli_sname + kPrefix.size(), &begin, 10);
    std::string const name(begin, strnlen(begin, length));
    if (name != last) names += name + ' ';
    last = name;
  }
  std::strncpy(out, names.c_str(), size - 1);
  out[size - 1] = '\0';
}

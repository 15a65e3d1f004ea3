// native/operators.cpp: the PyTorch operators on the call stack.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <execinfo.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "null_gpu/native/api.hpp"

namespace {

// The operator whose code contains the address, or "". PyTorch calls an operator through
// at::_ops::NAME::call() or redispatch(), whose mangled name is
// _ZN2at4_ops<length>NAME<length>call...
std::string operator_at(void const* address) {
  constexpr std::string_view kPrefix = "_ZN2at4_ops";
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_sname == nullptr) return {};
  std::string_view const symbol = info.dli_sname;
  if (!symbol.starts_with(kPrefix)) return {};
  char* begin = nullptr;
  auto const length = std::strtoul(info.dli_sname + kPrefix.size(), &begin, 10);
  return {begin, strnlen(begin, length)};
}

// The operator at each address that was on a stack so far: dladdr() walks through all symbols of a
// library, which takes milliseconds for PyTorch's.
struct Found {
  std::mutex mutex;
  std::unordered_map<void const*, std::string> names;
};
Found& found() {
  static Found* const all = new Found;
  return *all;
}

}  // namespace

// Writes the names of the operators on this thread's stack into `out`, innermost first, each
// followed by a space, cut to `size` bytes.
NULL_GPU_API void null_operators(char* out, int size) {
  constexpr int kFrames = 128;
  void* frames[kFrames];
  int const count = backtrace(frames, kFrames);
  std::string names;
  std::string_view last;
  auto& [mutex, known] = found();
  std::lock_guard const lock(mutex);
  for (int frame = 0; frame < count; ++frame) {
    auto const [entry, is_new] = known.try_emplace(frames[frame]);
    if (is_new) entry->second = operator_at(frames[frame]);
    std::string const& name = entry->second;
    if (name.empty()) continue;
    if (name != last) names += name + ' ';
    last = name;
  }
  std::strncpy(out, names.c_str(), size - 1);
  out[size - 1] = '\0';
}

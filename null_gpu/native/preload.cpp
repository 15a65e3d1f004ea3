// native/preload.cpp: runs when a process of a program on null GPUs starts.
// SPDX-License-Identifier: Apache-2.0
//
// Scripts and commands such as `PYTHONPATH=. python train.py` replace the variable by which Python
// finds the hook. This library is in LD_PRELOAD, and puts the hook back before Python reads it.
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

__attribute__((constructor)) void keep_the_hook() {
  char const* const folder = std::getenv("ALLOCBENCH_HOOK_FOLDER");
  if (folder == nullptr) return;
  char const* const found = std::getenv("PYTHONPATH");
  std::string_view const path = found == nullptr ? "" : found;
  if (path.substr(0, path.find(':')) == folder) return;
  auto const with_hook = std::string(folder).append(path.empty() ? "" : ":").append(path);
  setenv("PYTHONPATH", with_hook.c_str(), 1);
}

}  // namespace

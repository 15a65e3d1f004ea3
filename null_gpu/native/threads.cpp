// native/threads.cpp: waiting for the threads of a program before it ends.
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPause{1};

std::string content(fs::path const& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Whether a thread runs or is ready to; false if it sleeps or has ended.
bool is_busy(fs::path const& thread) {
  std::string const stat = content(thread / "stat");
  auto const name_end = stat.rfind(')');  // "TID (NAME) STATE ..."
  return name_end != stat.npos && name_end + 2 < stat.size() && stat[name_end + 2] != 'S';
}

bool any_busy(std::string_view prefix) {
  std::error_code failed;
  for (fs::directory_iterator thread("/proc/self/task", failed), end; !failed && thread != end;
       thread.increment(failed)) {
    auto const& path = thread->path();
    if (content(path / "comm").starts_with(prefix) && is_busy(path)) return true;
  }
  return false;
}

}  // namespace

// Waits until every thread whose name starts with `prefix` sleeps, at most for `milliseconds`.
NULL_GPU_API void null_wait_for_threads(char const* prefix, int milliseconds) {
  auto const end = steady_clock::now() + std::chrono::milliseconds{milliseconds};
  while (any_busy(prefix) && steady_clock::now() < end) std::this_thread::sleep_for(kPause);
}

}  // namespace allocbench::null_gpu

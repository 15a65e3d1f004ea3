// null_gpu/missing.cpp: what stands for a function of NVIDIA's libraries that has none of its own.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "null_gpu/kernels.hpp"
#include "null_gpu/runtime.hpp"

NULL_GPU_API int null_missing(char const* name, int status) {
  static std::mutex mutex;
  static auto* told = new std::set<std::string>;
  std::lock_guard const lock(mutex);
  if (told->insert(name).second) {
    std::fprintf(stderr, "allocbench: the null GPU does not have %s: it answers error %d\n", name,
                 status);
  }
  return status;
}

NULL_GPU_API int null_work() {
  allocbench::null_gpu::launched(nullptr);
  return 0;
}

NULL_GPU_API int null_harmless() { return 0; }

// An error without a word: for libraries that programs ask whether they work.
NULL_GPU_API int null_refused(char const*, int status) { return status; }

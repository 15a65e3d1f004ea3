// native/missing.cpp: stands in for functions of NVIDIA's libraries without an implementation.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "null_gpu/native/kernels.hpp"
#include "null_gpu/native/runtime.hpp"

NULL_GPU_API int null_missing(char const* name, int status) {
  static std::mutex mutex;
  static auto* reported = new std::set<std::string>;
  std::lock_guard const lock(mutex);
  if (reported->insert(name).second) {
    std::fprintf(stderr, "allocbench: the null GPU does not implement %s: it returns error %d\n",
                 name, status);
  }
  return status;
}

NULL_GPU_API int null_work() {
  allocbench::null_gpu::launched(nullptr);
  return 0;
}

NULL_GPU_API int null_harmless() { return 0; }

// Returns an error silently. For libraries that programs call to find out whether they work.
NULL_GPU_API int null_refused(char const*, int status) { return status; }

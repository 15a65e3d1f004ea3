// native/contexts.hpp: the driver of this process, and the primary contexts of its devices.
// SPDX-License-Identifier: Apache-2.0
//
// As with CUDA, the driver can be used by the process that called cuInit, until that process ends,
// and not by its forked children. A primary context lasts while it is retained; what it holds then,
// except for virtual memory and pools, goes with it. A thread has no current context until one is
// pushed or set.
//
// CUDA's runtime does all of this by itself. In a process that uses the runtime, the driver is
// therefore always initialized, all contexts are active, and each thread begins in that of device
// 0.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>

#include "null_gpu/native/api.hpp"
#include "null_gpu/native/memory.hpp"

namespace allocbench::null_gpu {

class Contexts : public Only<Contexts> {
 public:
  void initialize();  // cuInit
  void use_runtime() { runtime_ = true; }
  bool uses_runtime() const { return runtime_; }
  // Whether this process can use the driver now: kSuccess, kNotInitialized or kDeinitialized.
  Status check() const;
  // The process that called cuInit; 0 before.
  pid_t process() const { return process_; }

  void retain(int device) { ++retained_[device]; }
  Status release(int device);
  bool active(int device) const { return runtime_ || retained_[device] > 0; }

  int retained() const;  // how often, all devices together
  // What contexts held when they were destroyed: events, and allocations of cuMemAlloc.
  std::uint64_t abandoned() const { return abandoned_; }

 private:
  std::atomic<bool> runtime_ = false, over_ = false;
  std::atomic<pid_t> process_ = 0;
  std::array<std::atomic<int>, kMostDevices> retained_ = {};
  std::atomic<std::uint64_t> abandoned_ = 0;
};

// Each counts a call of a function, and returns the error that it must return: because it fails on
// purpose, because this process cannot use the driver, or because the thread has no context. In
// `entered_driver(name) ?: call()`, GNU's short form of a condition, the call follows if there is
// no error.
Status entered_runtime(char const* function);  // the runtime cannot fail for the last two reasons
Status entered_driver(char const* function);   // needs no context
Status entered_context(char const* function);

}  // namespace allocbench::null_gpu

// A function of the driver that returns the result of a call. `check`: one of the three above, or
// `entered`.
#define NULL_GPU_RETURNS(name, check, parameters, ...) \
  NULL_GPU_API int null_##name parameters { return check(#name) ?: (__VA_ARGS__); }
// The same, but it succeeds after one statement.
#define NULL_GPU_CHECKED(name, check, parameters, ...)     \
  NULL_GPU_API int null_##name parameters {                \
    if (Status const status = check(#name)) return status; \
    __VA_ARGS__;                                           \
    return kSuccess;                                       \
  }
// A function of the runtime and the one of the driver that does the same. `check`: entered_driver
// or entered_context.
#define NULL_GPU_PAIR(runtime, driver, check, parameters, call)       \
  NULL_GPU_API int null_##runtime parameters { return failed(call); } \
  NULL_GPU_API int null_##driver parameters { return check(#driver) ?: (call); }

// native/contexts.cpp: the driver of this process, and the primary contexts of its devices.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/contexts.hpp"

#include <unistd.h>

#include <cstdlib>

#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/streams.hpp"

namespace allocbench::null_gpu {

Contexts& Contexts::get() {
  static auto* instance = new Contexts;
  return *instance;
}

void Contexts::initialize() {
  pid_t none = 0;
  if (process_.compare_exchange_strong(none, getpid())) std::atexit([] { get().over_ = true; });
}

Status Contexts::check() const {
  if (process_ == 0) return runtime_ ? kSuccess : kNotInitialized;
  if (process_ != getpid()) return kNotInitialized;
  return over_ ? kDeinitialized : kSuccess;
}

Status Contexts::release(int device) {
  int held = retained_[device];
  do {
    if (held == 0) return kInvalidContext;
  } while (!retained_[device].compare_exchange_weak(held, held - 1));
  if (held > 1 || runtime_) return kSuccess;
  abandoned_ += Streams::get().destroy_all(device);
  abandoned_ += Machine::get().memory(device).release_all();
  return kSuccess;
}

int Contexts::retained() const {
  int total = 0;
  for (auto const& held : retained_) total += held;
  return total;
}

Status entered_runtime(char const* function) {
  Contexts::get().use_runtime();
  return entered(function);
}

Status entered_driver(char const* function) {
  if (Status const status = entered(function)) return status;
  return Contexts::get().check();
}

Status entered_context(char const* function) {
  if (Status const status = entered_driver(function)) return status;
  return has_context() ? kSuccess : kInvalidContext;
}

}  // namespace allocbench::null_gpu

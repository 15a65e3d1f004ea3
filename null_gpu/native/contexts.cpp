// native/contexts.cpp: the driver of this process, its devices, and their primary contexts.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/contexts.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/streams.hpp"

namespace allocbench::null_gpu {

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

Status entered_driver(char const* function) { return entered(function) ?: Contexts::get().check(); }

Status entered_context(char const* function) {
  return entered_driver(function) ?: (has_context() ? kSuccess : kInvalidContext);
}

}  // namespace allocbench::null_gpu

using namespace allocbench::null_gpu;

namespace {

struct ContextsBelow : std::vector<Handle> {};  // the current one, on the stack

Handle context_of(int device) { return reinterpret_cast<Handle>(kFirstContext + device); }
int device_of_context(Handle context) {
  return static_cast<int>(reinterpret_cast<Address>(context) - kFirstContext);
}

Handle current_context() { return has_context() ? context_of(current_device()) : nullptr; }

bool exists(Handle context) {
  int const device = device_of_context(context);
  return Machine::get().has(device) && Contexts::get().active(device);
}

void make_current(Handle context) {
  if (context == nullptr)
    leave_context();
  else
    set_current_device(device_of_context(context));
}

}  // namespace

NULL_GPU_API int null_cuInit(unsigned) {
  Contexts::get().initialize();
  if (Status const status = entered_driver("cuInit")) return status;
  return Machine::get().count() > 0 ? kSuccess : kNoGpu;
}

NULL_GPU_API int null_cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  if (Status const status = entered_driver("cuDevicePrimaryCtxGetState")) return status;
  if (!Machine::get().has(device)) return kInvalidDevice;
  *flags = 0;
  *active = Contexts::get().active(device);
  return kSuccess;
}

NULL_GPU_API int null_cuDevicePrimaryCtxRetain(Handle* context, int device) {
  if (Status const status = entered_driver("cuDevicePrimaryCtxRetain")) return status;
  if (!Machine::get().has(device)) return kInvalidDevice;
  Contexts::get().retain(device);
  *context = context_of(device);
  return kSuccess;
}

NULL_GPU_RETURNS(cuDevicePrimaryCtxRelease_v2, entered_driver, (int device),
                 Machine::get().has(device) ? Contexts::get().release(device) : kInvalidDevice)
NULL_GPU_CHECKED(cuCtxGetCurrent, entered_driver, (Handle * context), *context = current_context())

NULL_GPU_API int null_cuCtxSetCurrent(Handle context) {
  if (Status const status = entered_driver("cuCtxSetCurrent")) return status;
  if (context != nullptr && !exists(context)) return kInvalidContext;
  make_current(context);
  return kSuccess;
}

NULL_GPU_API int null_cuCtxPushCurrent_v2(Handle context) {
  if (Status const status = entered_driver("cuCtxPushCurrent_v2")) return status;
  if (!exists(context)) return kInvalidContext;
  ThreadObject<ContextsBelow>::get().push_back(current_context());
  make_current(context);
  return kSuccess;
}

NULL_GPU_API int null_cuCtxPopCurrent_v2(Handle* context) {
  if (Status const status = entered_context("cuCtxPopCurrent_v2")) return status;
  if (context != nullptr) *context = current_context();
  auto& pushed = ThreadObject<ContextsBelow>::get();
  make_current(pushed.empty() ? nullptr : pushed.back());
  if (!pushed.empty()) pushed.pop_back();
  return kSuccess;
}

NULL_GPU_CHECKED(cuCtxGetDevice, entered_context, (int* device), *device = current_device())
NULL_GPU_DOES(cuCtxGetLimit, (Size * size, int), *size = 0)

// Tables of functions that are in none of CUDA's headers. A copy of CUDA's runtime that is linked
// into a library asks for this one first, and cannot work without it.
NULL_GPU_API int null_cuGetExportTable(void const**, void const* id) {
  constexpr unsigned char kOfRuntime[] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a};
  static std::atomic<bool> reported = false;
  if (std::memcmp(id, kOfRuntime, sizeof kOfRuntime) == 0 && !reported.exchange(true)) {
    std::fputs(
        "allocbench: a library has its own copy of CUDA's runtime (nvcc -cudart static), which"
        " a null GPU does not serve: its calls fail; link it with -cudart shared\n",
        stderr);
  }
  return kNotFound;
}

// devices/cuda_driver.cpp: the CUDA driver API, loaded at run time.
// SPDX-License-Identifier: Apache-2.0
#include "devices/cuda_driver.hpp"

#include <dlfcn.h>

#include "core/errors.hpp"

namespace allocbench::cuda {
namespace {

constexpr char const* kLibrary = "libcuda.so.1";

void* open_library() {
  if (void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL)) return library;
  char const* const reason = dlerror();
  throw SpecError(std::string("no CUDA driver found: ") + (reason == nullptr ? kLibrary : reason));
}

template <class Function>
void load(void* library, char const* symbol, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, symbol));
  if (function == nullptr)
    throw SpecError(std::string("the CUDA driver is too old: ") + kLibrary + " has no " + symbol +
                    " (needs CUDA 11.3 or later)");
}

}  // namespace

Driver const& Driver::get() {
  // Never deleted, because calls may come until the process ends.
  static Driver const* const driver = new Driver;
  return *driver;
}

Driver::Driver() {
  void* const library = open_library();
#define ALLOCBENCH_LOAD(member, symbol, ...) load(library, #symbol, member.function);
  ALLOCBENCH_CUDA_CALLS(ALLOCBENCH_LOAD)
#undef ALLOCBENCH_LOAD
  auto const check = [&](char const* name, Result result) {
    if (result != kSuccess) throw SpecError("no CUDA device found: " + describe(name, result));
  };
  check(init.name, init(0u));
  check(driver_version.name, driver_version(&version));
  check(device_count.name, device_count(&devices));
}

std::string Driver::describe(char const* call, Result result) const {
  char const* name = nullptr;
  char const* text = nullptr;
  std::string message = std::string(call).substr(0, std::string(call).find("_v2")) + ": ";
  message += error_name(result, &name) == kSuccess ? name : "unknown error";
  message += " (" + std::to_string(result);
  if (error_text(result, &text) == kSuccess) message += std::string(": ") + text;
  return message + ")";
}

}  // namespace allocbench::cuda

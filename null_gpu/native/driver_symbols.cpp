// native/driver_symbols.cpp: the functions of the driver by name.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <string>

#include "null_gpu/native/runtime.hpp"

using namespace allocbench::null_gpu;

namespace {

// The function of a symbol, which callers name without the suffix of its newest version.
void* symbol(std::string const& name) {
  static void* const self = [] {
    Dl_info info;
    dladdr(reinterpret_cast<void*>(&null_missing), &info);
    return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  }();
  for (char const* suffix : {"_v3", "_v2", ""}) {
    if (void* const function = dlsym(self, ("null_" + name + suffix).c_str())) return function;
  }
  // The stand-in for the driver has the other functions; they print their names when called.
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return driver == nullptr ? nullptr : dlsym(driver, name.c_str());
}

}  // namespace

// `status` says whether the symbol exists; the call itself succeeds, as in CUDA's runtime.
NULL_GPU_API int null_cudaGetDriverEntryPoint(char const* name, void** function, unsigned long long,
                                              int* status) {
  *function = symbol(name);
  if (status != nullptr) *status = *function == nullptr;
  if (*function == nullptr) null_missing(name, kNotFound);
  return kSuccess;
}

NULL_GPU_API int null_cudaGetDriverEntryPointByVersion(char const* name, void** function, unsigned,
                                                       unsigned long long flags, int* status) {
  return null_cudaGetDriverEntryPoint(name, function, flags, status);
}

NULL_GPU_API int null_cuGetProcAddress_v2(char const* name, void** function, int,
                                          unsigned long long, int* status) {
  *function = symbol(name);
  if (status != nullptr) *status = *function == nullptr;
  return *function == nullptr ? null_missing(name, kNotFound) : kSuccess;
}

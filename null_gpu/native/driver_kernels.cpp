// native/driver_kernels.cpp: modules and kernels of the driver, as Triton and NVRTC use them.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "null_gpu/native/hidden_writes.hpp"
#include "null_gpu/native/kernels.hpp"
#include "null_gpu/native/machine.hpp"

using namespace allocbench::null_gpu;

NULL_GPU_API int null_cuModuleLoadData(Handle* module, void const*) {
  *module = Machine::get().new_handle();
  return kSuccess;
}

NULL_GPU_API int null_cuModuleLoadDataEx(Handle* module) {
  return null_cuModuleLoadData(module, nullptr);
}

NULL_GPU_API int null_cuModuleLoad(Handle* module, char const*) {
  return null_cuModuleLoadData(module, nullptr);
}

NULL_GPU_API int null_cuLibraryLoadData(Handle* library) {
  return null_cuModuleLoadData(library, nullptr);
}

NULL_GPU_API int null_cuLibraryUnload(Handle) { return kSuccess; }
NULL_GPU_API int null_cuModuleUnload(Handle) { return kSuccess; }

NULL_GPU_API int null_cuModuleGetLoadingMode(int* mode) {
  *mode = 2;  // lazy
  return kSuccess;
}

NULL_GPU_API int null_cuModuleGetFunction(Handle* function, Handle, char const*) {
  *function = Machine::get().new_handle();
  return kSuccess;
}

NULL_GPU_API int null_cuModuleGetGlobal_v2(Address* address, Size* size, Handle, char const*) {
  if (address != nullptr) *address = kFirstAddress;
  if (size != nullptr) *size = 8;
  return kSuccess;
}

NULL_GPU_API int null_cuFuncGetAttribute(int* value, int attribute, Handle) {
  constexpr int kThreads = 0, kRegistersUsed = 4, kPtx = 5, kBinary = 6;
  switch (attribute) {
    case kThreads:
      *value = 1024;
      break;
    case kRegistersUsed:
      *value = kRegisters;
      break;
    case kPtx:
    case kBinary:
      *value = Machine::get().kernel_version();
      break;
    default:
      *value = 0;
  }
  return kSuccess;
}

NULL_GPU_API int null_cuFuncSetAttribute(Handle, int, int) { return kSuccess; }
NULL_GPU_API int null_cuFuncSetCacheConfig(Handle, int) { return kSuccess; }

NULL_GPU_API int null_cuLaunchKernel(Handle, unsigned, unsigned, unsigned, unsigned, unsigned,
                                     unsigned, unsigned, Handle stream) {
  launched(stream);
  on_driver_launch();
  return kSuccess;
}

NULL_GPU_API int null_cuLaunchCooperativeKernel(Handle, unsigned, unsigned, unsigned, unsigned,
                                                unsigned, unsigned, unsigned, Handle stream) {
  launched(stream);
  on_driver_launch();
  return kSuccess;
}

NULL_GPU_API int null_cuLaunchKernelEx(DriverLaunchConfig const* config) {
  launched(config->stream);
  on_driver_launch();
  return kSuccess;
}

NULL_GPU_API int null_cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Handle, int threads,
                                                                  Size shared) {
  *blocks = Machine::get().blocks_at_once(threads, shared);
  return kSuccess;
}

NULL_GPU_API int null_cuOccupancyMaxActiveClusters(int* clusters) {
  *clusters = Machine::get().settings().multiprocessors;
  return kSuccess;
}

NULL_GPU_API int null_cuTensorMapEncodeTiled(void* map) {
  std::memset(map, 0, 128);
  return kSuccess;
}

NULL_GPU_API int null_cuTensorMapEncodeIm2col(void* map) {
  return null_cuTensorMapEncodeTiled(map);
}

NULL_GPU_API int null_cuLinkCreate_v2(unsigned, void*, void*, Handle* link) {
  *link = Machine::get().new_handle();
  return kSuccess;
}

NULL_GPU_API int null_cuLinkAddData_v2(Handle) { return kSuccess; }
NULL_GPU_API int null_cuLinkDestroy(Handle) { return kSuccess; }

NULL_GPU_API int null_cuLinkComplete(Handle, void** binary, Size* size) {
  static char nothing[16];
  *binary = nothing;
  if (size != nullptr) *size = sizeof nothing;
  return kSuccess;
}

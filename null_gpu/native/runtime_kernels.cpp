// native/runtime_kernels.cpp: kernel launches, which are counted and make all values unknown.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <vector>

#include "null_gpu/native/hidden_writes.hpp"
#include "null_gpu/native/kernels.hpp"
#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/operators.hpp"
#include "null_gpu/native/streams.hpp"
#include "null_gpu/native/thread_object.hpp"
#include "null_gpu/native/values.hpp"

using namespace allocbench::null_gpu;

namespace {

struct Pushed {
  Dim3 grid, block;
  Size shared;
  Handle stream;
};
using PushedLaunches = std::vector<Pushed>;  // by <<<...>>>, for the following launch

constexpr int kDynamicShared = 49152;  // the most that a kernel can use without opting in

}  // namespace

namespace allocbench::null_gpu {

void launched(Handle stream) {
  ++Machine::get().kernels;
  Streams::get().enqueue(stream);
  Values::get().forget_all();
  kernel_in_operator();
}

}  // namespace allocbench::null_gpu

NULL_GPU_API unsigned null___cudaPushCallConfiguration(Dim3 grid, Dim3 block, Size shared,
                                                       Handle stream) {
  ThreadObject<PushedLaunches>::get().push_back({grid, block, shared, stream});
  return kSuccess;
}

NULL_GPU_API int null___cudaPopCallConfiguration(Dim3* grid, Dim3* block, Size* shared,
                                                 Handle* stream) {
  auto& pushed = ThreadObject<PushedLaunches>::get();
  if (pushed.empty()) return failed(kInvalidValue);
  auto const last = pushed.back();
  pushed.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *stream = last.stream;
  return kSuccess;
}

NULL_GPU_API void** null___cudaRegisterFatBinary(void const* binary) {
  return handle_for_kernels(binary);
}

NULL_GPU_API void null___cudaRegisterFatBinaryEnd(void**) {}
NULL_GPU_API void null___cudaUnregisterFatBinary(void**) {}
NULL_GPU_API void null___cudaRegisterFunction(void** handle, void const* function) {
  add_kernel(handle, function);
}
NULL_GPU_API void null___cudaRegisterVar(void**) {}
NULL_GPU_API void null___cudaRegisterManagedVar(void**) {}
NULL_GPU_API char null___cudaInitModule(void**) { return 1; }

NULL_GPU_API int null___cudaGetKernel(Handle* kernel, void const* function) {
  *kernel = const_cast<void*>(function);
  return kSuccess;
}

NULL_GPU_API int null_cudaLaunchKernel(void const* function, Dim3, Dim3, void**, Size,
                                       Handle stream) {
  launched(stream);
  on_launch(function);
  return kSuccess;
}

NULL_GPU_API int null___cudaLaunchKernel(Handle kernel, Dim3 grid, Dim3 block, void** arguments,
                                         Size shared, Handle stream) {
  return null_cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

NULL_GPU_API int null_cudaLaunchCooperativeKernel(void const* function, Dim3 grid, Dim3 block,
                                                  void** arguments, Size shared, Handle stream) {
  return null_cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}

NULL_GPU_API int null_cudaLaunchKernelExC(LaunchConfig const* config, void const* function,
                                          void**) {
  launched(config->stream);
  on_launch(function);
  return kSuccess;
}

NULL_GPU_API int null_cudaFuncGetAttributes(FunctionAttributes* out, void const*) {
  int const version = Machine::get().kernel_version();
  *out = {};
  out->threads_per_block = 1024;
  out->registers = kRegisters;
  out->ptx_version = out->binary_version = version;
  out->dynamic_shared = kDynamicShared;
  return kSuccess;
}

NULL_GPU_API int null_cudaFuncSetAttribute(void const*, int, int) { return kSuccess; }
NULL_GPU_API int null_cudaFuncSetCacheConfig(void const*, int) { return kSuccess; }

NULL_GPU_API int null_cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void const*,
                                                                    int threads, Size shared) {
  *blocks = Machine::get().blocks_at_once(threads, shared);
  return kSuccess;
}

NULL_GPU_API int null_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, void const* function, int threads, Size shared, unsigned) {
  return null_cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}

NULL_GPU_API int null_cudaOccupancyMaxActiveClusters(int* clusters, void const*, void const*) {
  *clusters = Machine::get().settings().multiprocessors;
  return kSuccess;
}

NULL_GPU_API int null_cudaGetSymbolAddress(void** address, void const*) {
  *address = reinterpret_cast<void*>(kFirstAddress);
  return kSuccess;
}

NULL_GPU_API int null_cudaGetFuncBySymbol(Handle* function, void const* symbol) {
  *function = const_cast<void*>(symbol);
  return kSuccess;
}

NULL_GPU_API int null_cudaLibraryLoadData(Handle* library) {
  *library = Machine::get().new_handle();
  return kSuccess;
}

NULL_GPU_API int null_cudaLibraryGetKernel(Handle* kernel, Handle, char const*) {
  *kernel = Machine::get().new_handle();
  return kSuccess;
}

NULL_GPU_API int null_cudaLibraryLoadFromFile(Handle* library) {
  return null_cudaLibraryLoadData(library);
}

NULL_GPU_API int null_cudaLibraryGetUnifiedFunction(Handle* function, Handle library,
                                                    char const* name) {
  return null_cudaLibraryGetKernel(function, library, name);
}

// A library is not read, so it has no variables, and its kernels are not counted.
NULL_GPU_API int null_cudaLibraryGetGlobal(void**, Size*, Handle, char const*) {
  return failed(kNotFound);
}
NULL_GPU_API int null_cudaLibraryGetManaged(void**, Size*, Handle, char const*) {
  return failed(kNotFound);
}
NULL_GPU_API int null_cudaLibraryGetKernelCount(unsigned* count, Handle) {
  *count = 0;
  return kSuccess;
}

NULL_GPU_API int null_cudaLibraryUnload(Handle) { return kSuccess; }
NULL_GPU_API int null_cudaKernelSetAttributeForDevice(Handle, int, int, int) { return kSuccess; }

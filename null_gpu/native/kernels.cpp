// native/kernels.cpp: modules and kernels, in the runtime and in the driver, as Triton and NVRTC
// use them, too. Launches are counted and make values unknown.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/streams.hpp"
#include "null_gpu/native/values.hpp"

using namespace allocbench::null_gpu;

namespace {

struct Pushed {
  Dim3 grid, block;
  Size shared;
  Handle stream;
};
using PushedLaunches = std::vector<Pushed>;  // by <<<...>>>, for the following launch

struct Pointers {
  std::vector<Address> given;  // since the last launch on this thread
};

constexpr int kThreads = 1024;         // of a block, at most
constexpr int kDynamicShared = 49152;  // the most that a kernel can use without opting in

void* own_kernels[1];
void* other_kernels[1];

struct Others : Only<Others> {
  std::mutex mutex;
  std::unordered_set<void const*> kernels;
  std::atomic<bool> any = false;
};

// Whether the library declares to PyTorch what its kernels write.
bool declares_writes(std::string_view path) {
  for (std::string_view const part : {"/libtorch", "/torchvision/_C", "/torchaudio/lib/"})
    if (path.find(part) != path.npos) return true;
  return false;
}

// A launch by the runtime. Forgets all values if the kernel is not PyTorch's own.
int launched_here(void const* function, Handle stream) {
  launched(stream);
  if (!Others::get().any) return kSuccess;
  std::lock_guard const lock(Others::get().mutex);
  if (Others::get().kernels.contains(function)) Values::get().forget_everything();
  return kSuccess;
}

// Programs of NVRTC with one kernel: which of its arguments are pointers. The handle of a program
// is also that of its module and of its function.
struct Compiled : Only<Compiled> {
  std::mutex mutex;
  std::unordered_map<Handle, std::vector<bool>> programs;

  std::vector<bool> pointers(Handle program) {
    std::lock_guard const lock(mutex);
    auto const found = programs.find(program);
    return found == programs.end() ? std::vector<bool>() : found->second;
  }
};

// The handle with which the code of NVRTC begins. Other code has any alignment, or is missing.
Handle program_of(void const* code) {
  Handle program = nullptr;
  if (code != nullptr) std::memcpy(&program, code, sizeof program);
  return program;
}

Handle loaded(Handle from) {
  return Compiled::get().pointers(from).empty() ? Machine::get().new_handle() : from;
}

// A launch by the driver. Outside of PyTorch's operators, it may write to every address that is an
// argument, or that this thread was given since the last launch. If none is known, it may write
// anywhere.
int launched_by_driver(Handle stream, Handle function = nullptr, Address** arguments = nullptr) {
  launched(stream);
  auto& pointers = ThreadObject<Pointers>::get().given;
  if (!in_operator()) {
    auto const written = Compiled::get().pointers(function);
    for (Size n = 0; arguments != nullptr && n < written.size(); ++n)
      if (written[n]) pointers.push_back(*arguments[n]);
    if (pointers.empty()) Values::get().forget_everything();
    for (Address const address : pointers) Values::get().forget_followed_at(address);
  }
  pointers.clear();
  return kSuccess;
}

}  // namespace

namespace allocbench::null_gpu {

void launched(Handle stream) {
  ++Machine::get().kernels;
  Streams::get().enqueue(stream);
  Values::get().forget_all();
  kernel_in_operator();
}

void compiled(Handle program, std::string_view source) {
  Size const kernel = source.find("__global__"), end = source.find(')', kernel);
  if (end == source.npos || source.rfind("__global__") != kernel) return;
  auto const head = source.substr(kernel, end - kernel);
  if (head.find('<') != head.npos || head.find("bounds") != head.npos) return;
  std::vector<bool> pointers(1);
  for (char const letter : head) {
    if (letter == ',') pointers.push_back(false);
    if (letter == '*') pointers.back() = true;
  }
  std::lock_guard const lock(Compiled::get().mutex);
  Compiled::get().programs[program] = pointers;
}

void pointer_given(Address address) { ThreadObject<Pointers>::get().given.push_back(address); }

}  // namespace allocbench::null_gpu

// -- the runtime

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

// A handle for the kernels of the library that contains the address.
NULL_GPU_API void** null___cudaRegisterFatBinary(void const* binary) {
  Dl_info info;
  bool const found = dladdr(binary, &info) != 0 && info.dli_fname != nullptr;
  return found && declares_writes(info.dli_fname) ? own_kernels : other_kernels;
}

NULL_GPU_API void null___cudaRegisterFunction(void** handle, void const* function) {
  if (handle != other_kernels) return;
  std::lock_guard const lock(Others::get().mutex);
  Others::get().kernels.insert(function);
  Others::get().any = true;
}

NULL_GPU_API void null___cudaRegisterFatBinaryEnd(void**) {}
NULL_GPU_ALIASES(null___cudaRegisterFatBinaryEnd, null___cudaUnregisterFatBinary,
                 null___cudaRegisterVar, null___cudaRegisterManagedVar);
NULL_GPU_API char null___cudaInitModule(void**) { return 1; }

NULL_GPU_GIVES(cudaLaunchKernel, (void const* function, Dim3, Dim3, void**, Size, Handle stream),
               launched_here(function, stream))
NULL_GPU_ALIASES(null_cudaLaunchKernel, null___cudaLaunchKernel, null_cudaLaunchCooperativeKernel);
NULL_GPU_GIVES(cudaLaunchKernelExC, (LaunchConfig const* config, void const* function, void**),
               launched_here(function, config->stream))

NULL_GPU_API int null_cudaFuncGetAttributes(FunctionAttributes* out, void const*) {
  int const version = Machine::get().kernel_version();
  *out = {};
  out->threads_per_block = kThreads;
  out->registers = kRegisters;
  out->ptx_version = out->binary_version = version;
  out->dynamic_shared = kDynamicShared;
  return kSuccess;
}

NULL_GPU_DOES(cudaGetSymbolAddress, (void** address, void const*),
              *address = reinterpret_cast<void*>(kFirstAddress))
NULL_GPU_DOES(cudaGetFuncBySymbol, (Handle * function, void const* symbol),
              *function = const_cast<void*>(symbol))
NULL_GPU_ALIASES(null_cudaGetFuncBySymbol, null___cudaGetKernel);

// A library is not read, so it has no variables, and its kernels are not counted.
NULL_GPU_GIVES(cudaLibraryGetGlobal, (void**, Size*, Handle, char const*), failed(kNotFound))
NULL_GPU_ALIASES(null_cudaLibraryGetGlobal, null_cudaLibraryGetManaged);
NULL_GPU_DOES(cudaLibraryGetKernelCount, (unsigned* count, Handle), *count = 0)

// -- the driver

NULL_GPU_DOES(cuModuleGetLoadingMode, (int* mode), *mode = 2)  // lazy

NULL_GPU_API int null_cuModuleGetGlobal_v2(Address* address, Size* size, Handle, char const*) {
  if (address != nullptr) *address = kFirstAddress;
  if (size != nullptr) *size = 8;
  return kSuccess;
}

NULL_GPU_API int null_cuFuncGetAttribute(int* value, int attribute, Handle) {
  int const version = Machine::get().kernel_version();
  switch (attribute) {
    case 0: *value = kThreads; break;
    case 4: *value = kRegisters; break;
    case 5:
    case 6: *value = version; break;  // of PTX, of the machine code
    default: *value = 0;
  }
  return kSuccess;
}

NULL_GPU_GIVES(cuLaunchKernel,
               (Handle function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                unsigned, Handle stream, Address** arguments),
               launched_by_driver(stream, function, arguments))
NULL_GPU_ALIASES(null_cuLaunchKernel, null_cuLaunchCooperativeKernel);
NULL_GPU_GIVES(cuLaunchKernelEx, (DriverLaunchConfig const* config),
               launched_by_driver(config->stream))
NULL_GPU_DOES(cuTensorMapEncodeTiled, (void* map), std::memset(map, 0, 128))
NULL_GPU_ALIASES(null_cuTensorMapEncodeTiled, null_cuTensorMapEncodeIm2col);
NULL_GPU_DOES(cuLinkCreate_v2, (unsigned, void*, void*, Handle* link),
              *link = Machine::get().new_handle())

NULL_GPU_API int null_cuLinkComplete(Handle, void** binary, Size* size) {
  static char nothing[16];
  *binary = nothing;
  if (size != nullptr) *size = sizeof nothing;
  return kSuccess;
}

// -- both

NULL_GPU_DOES(cudaOccupancyMaxActiveBlocksPerMultiprocessor,
              (int* blocks, void const*, int threads, Size shared),
              *blocks = Machine::get().blocks_at_once(threads, shared))
NULL_GPU_ALIASES(null_cudaOccupancyMaxActiveBlocksPerMultiprocessor,
                 null_cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
                 null_cuOccupancyMaxActiveBlocksPerMultiprocessor);
NULL_GPU_DOES(cudaOccupancyMaxActiveClusters, (int* clusters, void const*, void const*),
              *clusters = Machine::get().settings().multiprocessors)
NULL_GPU_ALIASES(null_cudaOccupancyMaxActiveClusters, null_cuOccupancyMaxActiveClusters);

// What is loaded or found has a handle, and nothing else. The code of NVRTC begins with one.
NULL_GPU_DOES(cuModuleLoadData, (Handle * module, void const* code),
              *module = loaded(program_of(code)))
NULL_GPU_ALIASES(null_cuModuleLoadData, null_cuModuleLoadDataEx);
NULL_GPU_DOES(cuModuleGetFunction, (Handle * function, Handle module), *function = loaded(module))
NULL_GPU_DOES(cuModuleLoad, (Handle * module, void const*), *module = Machine::get().new_handle())
NULL_GPU_ALIASES(null_cuModuleLoad, null_cuLibraryLoadData, null_cudaLibraryLoadData,
                 null_cudaLibraryLoadFromFile, null_cudaLibraryGetKernel,
                 null_cudaLibraryGetUnifiedFunction);

// strategies/external/shared_library.cpp: an allocator in a shared library, whose CUDA calls end
// here.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/errors.hpp"
#include "strategies/external.hpp"

namespace allocbench {
namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2;  // cudaError_t and CUresult

thread_local SegmentSource* source = nullptr;
thread_local int last_error = kSuccess;

// The library's CUDA calls go to `from` until the end of a scope.
class CallsGoTo {
 public:
  explicit CallsGoTo(SegmentSource& from) : before_(std::exchange(source, &from)) {}
  CallsGoTo(CallsGoTo const&) = delete;
  CallsGoTo& operator=(CallsGoTo const&) = delete;
  ~CallsGoTo() { source = before_; }

 private:
  SegmentSource* before_;
};

template <class Pointer>
int allocate(Pointer* pointer, std::size_t size) {
  if (pointer == nullptr || source == nullptr) return last_error = kInvalidValue;
  Address const segment = source->allocate_segment(size);
  *pointer = reinterpret_cast<Pointer>(segment);
  return last_error = segment == 0 && size != 0 ? kOutOfMemory : kSuccess;
}

int free(Address address) {
  bool const freed = address == 0 || (source != nullptr && source->free_segment(address));
  return last_error = freed ? kSuccess : kInvalidValue;
}

Address address_of(void* pointer) { return reinterpret_cast<Address>(pointer); }

// A cudaStream_t; 1 and 2 are cudaStreamLegacy and cudaStreamPerThread.
void* handle(Stream stream) { return reinterpret_cast<void*>(stream == 0 ? 0 : stream + 2); }

}  // namespace

#define EXPORTED extern "C" [[gnu::visibility("default")]]
// Functions that are the same as one in this file, which has fewer arguments or the same ones.
#define ALIASES(function, ...) \
  extern "C" [[gnu::visibility("default"), gnu::alias(#function)]] decltype(function) __VA_ARGS__

EXPORTED int cudaMalloc(void** pointer, std::size_t size) { return allocate(pointer, size); }
ALIASES(cudaMalloc, cudaMallocAsync, cudaMallocManaged);
EXPORTED int cudaFree(void* pointer) { return free(address_of(pointer)); }
ALIASES(cudaFree, cudaFreeAsync, cuMemFree_v2);
EXPORTED int cudaMemGetInfo(std::size_t* room, std::size_t* capacity) {
  if (source == nullptr) return last_error = kInvalidValue;
  *room = source->room_for_segments();
  *capacity = source->capacity();
  return kSuccess;
}
ALIASES(cudaMemGetInfo, cuMemGetInfo_v2);
EXPORTED int cudaGetDevice(int* device) { return *device = 0, kSuccess; }
EXPORTED int cudaSetDevice(int) { return kSuccess; }
ALIASES(cudaSetDevice, cudaDeviceSynchronize, cudaStreamSynchronize);
EXPORTED int cudaPeekAtLastError() { return last_error; }
EXPORTED int cudaGetLastError() { return std::exchange(last_error, kSuccess); }
EXPORTED char const* cudaGetErrorString(int error) {
  return error == kSuccess ? "no error" : error == kOutOfMemory ? "out of memory" : "invalid value";
}
EXPORTED int cuMemAlloc_v2(std::uint64_t* pointer, std::size_t size) {
  void* segment = nullptr;
  int const error = allocate(&segment, size);
  return *pointer = address_of(segment), error;
}

namespace {

// The functions above are found by libraries that are loaded from now on.
void show_runtime() {
  static bool const shown = [] {
    Dl_info here{};
    return dladdr(reinterpret_cast<void*>(&cudaMalloc), &here) != 0 &&
           dlopen(here.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL) != nullptr;
  }();
  require(shown, "the functions of the CUDA runtime can be shown to libraries");
}

// A copy of a file, which its owner removes.
std::string copy_of(std::string const& file) {
  std::string copy = (std::filesystem::temp_directory_path() / "allocbench-XXXXXX.so").string();
  int const descriptor = mkstemps(copy.data(), 3);
  std::error_code error;
  if (descriptor >= 0) close(descriptor);
  std::filesystem::copy_file(file, copy, std::filesystem::copy_options::overwrite_existing, error);
  if (!error) return copy;
  std::filesystem::remove(copy, error);
  throw SpecError("cannot read the library '" + file + "'");
}

// A library keeps its state in globals, so every allocator loads a copy of its own. While one of
// its functions runs, its calls of the CUDA runtime are calls of the source.
class SharedLibrary final : public ExternalAllocator {
 public:
  SharedLibrary(std::string const& file, std::string const& malloc, std::string const& free,
                SegmentSource& from)
      : source_(from) {
    show_runtime();
    CallsGoTo const scope(source_);
    std::string const copy = copy_of(file);
    library_ = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
    std::string error = library_ == nullptr ? dlerror() : "";
    unlink(copy.c_str());
    if (auto const at = error.find(copy); at != std::string::npos)
      error.replace(at, copy.size(), file);
    if (library_ == nullptr)
      throw SpecError("cannot load the library '" + file + "': " + error +
                      " (link it without the CUDA runtime; cudaMalloc, cudaFree and cudaMemGetInfo "
                      "are there)");
    malloc_ = reinterpret_cast<Malloc>(dlsym(library_, malloc.c_str()));
    free_ = reinterpret_cast<Free>(dlsym(library_, free.c_str()));
    if (malloc_ != nullptr && free_ != nullptr) return;
    dlclose(library_);
    throw SpecError("the library '" + file + "' has no function '" +
                    (malloc_ == nullptr ? malloc : free) + "'; name its functions with " + file +
                    ":malloc=NAME,free=NAME");
  }

  ~SharedLibrary() override {
    CallsGoTo const scope(source_);
    dlclose(library_);
  }

  Address allocate(Size requested, Stream stream) override {
    CallsGoTo const scope(source_);
    return address_of(malloc_(static_cast<ssize_t>(requested), 0, handle(stream)));
  }

  void free(Address address, Size requested, Stream stream) override {
    CallsGoTo const scope(source_);
    free_(reinterpret_cast<void*>(address), static_cast<ssize_t>(requested), 0, handle(stream));
  }

 private:
  // As PyTorch declares them: size, device, CUDA stream.
  using Malloc = void* (*)(ssize_t, int, void*);
  using Free = void (*)(void*, ssize_t, int, void*);

  SegmentSource& source_;
  void* library_ = nullptr;
  Malloc malloc_ = nullptr;
  Free free_ = nullptr;
};

}  // namespace

std::unique_ptr<ExternalAllocator> load_library(std::string const& file, std::string const& malloc,
                                                std::string const& free, SegmentSource& from) {
  return std::make_unique<SharedLibrary>(file, malloc, free, from);
}

}  // namespace allocbench

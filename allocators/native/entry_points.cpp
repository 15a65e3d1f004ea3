// entry_points.cpp: the allocation functions that PyTorch and CuPy call.
// SPDX-License-Identifier: Apache-2.0
//
// They are C functions, because these libraries take function addresses. A failed request of
// PyTorch throws an exception, which PyTorch passes on to the program. Other callers do not expect
// exceptions: they get a null address, and `last_failure` gives the reason.
#include <cxxabi.h>
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <type_traits>
#include <typeinfo>

#include "core/text.hpp"
#include "program.hpp"
#include "torch_errors.hpp"

namespace allocbench {
namespace {

// -- errors of PyTorch
// Programs without PyTorch load this library too, so it cannot be linked to the libraries with
// PyTorch's class c10::OutOfMemoryError. The constructor, the virtual table and the type of the
// class are looked up by their symbols in the libraries that the program has loaded. The
// constructor is in libc10; the others are in libc10 from 2.13 on and in libc10_cuda before. The
// symbol of the constructor includes its parameter types. Up to 2.5, PyTorch's CUDA wheels use the
// std::string of before C++11: see torch_errors_old_string.cpp.
constexpr char const* kLibraries[] = {"libc10.so", "libc10_cuda.so"};
constexpr char const* kType = "_ZTIN3c1016OutOfMemoryErrorE";
constexpr char const* kVirtualTable = "_ZTVN3c1016OutOfMemoryErrorE";
// Error(SourceLocation, std::string), which OutOfMemoryError inherits
constexpr char const* kConstructor =
    "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
constexpr char const* kOldStringConstructor = "_ZN3c105ErrorC1ENS_14SourceLocationESs";
constexpr std::size_t kExceptionBytes = 4096;  // the exception has about 200

void* find(char const* symbol) {
  for (char const* name : kLibraries)
    if (void* const library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) {
      void* const address = dlsym(library, symbol);
      dlclose(library);  // the library stays loaded
      if (address != nullptr) return address;
    }
  return nullptr;
}

void destroy(void* exception) { static_cast<std::exception*>(exception)->~exception(); }

using Constructor = void (*)(void* self, SourceLocation, std::string);

// Constructs the base class of the exception at `self`. False if this PyTorch has no known
// constructor.
bool construct(void* self, std::string const& text) {
  constexpr SourceLocation kHere = {"allocbench_torch_alloc", "entry_points.cpp", 0};
  if (auto const constructor = reinterpret_cast<Constructor>(find(kConstructor))) {
    constructor(self, kHere, text);
    return true;
  }
  void* const old_constructor = find(kOldStringConstructor);
  return old_constructor != nullptr &&
         construct_with_old_string(old_constructor, self, kHere, text.c_str());
}

// Whether this process has loaded PyTorch. No other caller expects exceptions of a C function.
bool torch_is_loaded() { return find(kType) != nullptr; }

// Throws the C++ exception that PyTorch converts to torch.OutOfMemoryError. If this version of
// PyTorch does not allow it, throws one that becomes a RuntimeError, the base class. The message
// begins with "CUDA out of memory", because programs search for these words.
[[noreturn]] void throw_to_torch(std::string const& message) {
  std::string const text = "CUDA out of memory. " + message;
  auto* const type = static_cast<std::type_info*>(find(kType));
  auto** const table = static_cast<void**>(find(kVirtualTable));
  if (type != nullptr && table != nullptr) {
    void* const exception = abi::__cxa_allocate_exception(kExceptionBytes);
    if (construct(exception, text)) {
      *static_cast<void***>(exception) = table + 2;  // skips the offset to top and the type
      abi::__cxa_throw(exception, type, &destroy);
    }
    abi::__cxa_free_exception(exception);
  }
  throw std::runtime_error(text);
}

// -- calls

std::atomic<Program*> torch_program = nullptr;
thread_local std::string failure_of_this_thread;

// Returns 0, with the reason in `failure`, if there is no memory. Throws if the GPU cannot be used.
Address request(Program* program, Size size, int device, void* stream, std::string& failure) {
  if (program == nullptr) throw std::logic_error("no allocator has been selected");
  return program->on(device).allocate(size, stream, failure);
}

// Makes a call of PyTorch, which handles its exceptions. For any other caller, the text of an
// exception is kept for `last_failure` and printed, and the result is empty.
template <class Call>
std::invoke_result_t<Call> for_torch(Call call) {
  try {
    return call();
  } catch (std::exception const& error) {
    if (torch_is_loaded()) throw;
    failure_of_this_thread = error.what();
    std::fprintf(stderr, "allocbench: %s\n", error.what());
    return std::invoke_result_t<Call>();
  }
}

// Reports an invalid free on standard error instead of throwing, because destructors may call it.
void free_block(Program* program, void* block, int device) noexcept {
  ProgramMemory* const memory = program == nullptr ? nullptr : program->find(device);
  auto const address = reinterpret_cast<Address>(block);
  if (memory == nullptr || !memory->deallocate(address))
    std::fprintf(stderr, "allocbench: free of %s on cuda:%d, which is not an allocated block\n",
                 hex(address).c_str(), device);
}

template <class Call>
void for_each_memory(Call call) {
  if (Program* const program = torch_program) for_torch([&] { program->for_each(call); });
}

ProgramMemory* torch_memory(int device) {
  Program* const program = torch_program;
  return program == nullptr ? nullptr : program->find(device);
}

}  // namespace

void serve_torch(Program* program) { torch_program = program; }

std::string last_failure() { return failure_of_this_thread; }

}  // namespace allocbench

#define ENTRY extern "C" __attribute__((visibility("default")))

using namespace allocbench;

// -- PyTorch

ENTRY void* allocbench_torch_alloc(std::ptrdiff_t size, int device, void* stream) {
  if (size <= 0) return nullptr;
  return for_torch([&] {
    std::string failure;
    Address const address =
        request(torch_program, static_cast<Size>(size), device, stream, failure);
    if (address == 0) throw_to_torch(failure);
    return reinterpret_cast<void*>(address);
  });
}

ENTRY void allocbench_torch_free(void* block, std::ptrdiff_t, int device, void*) {
  if (block != nullptr) free_block(torch_program, block, device);
}

ENTRY void allocbench_torch_reset() {
  for_each_memory([](ProgramMemory& memory) { memory.trim(); });
}

ENTRY void allocbench_torch_memory_fraction(double fraction, int device) {
  if (torch_program == nullptr) return;
  for_torch([&] {
    if (!(fraction >= 0 && fraction <= 1))
      throw std::invalid_argument("a memory fraction of " + std::to_string(fraction) +
                                  " must be from 0 to 1");
    ProgramMemory& memory = torch_program.load()->on(device);
    memory.limit(static_cast<Size>(fraction * static_cast<double>(memory.device().total())));
  });
}

ENTRY void allocbench_torch_record_stream(void* block, void* stream) {
  for_each_memory(
      [&](ProgramMemory& memory) { memory.use_on(reinterpret_cast<Address>(block), stream); });
}

ENTRY void* allocbench_torch_base(void* block, std::size_t* size) {
  std::pair<Address, Size> segment;
  for_each_memory([&](ProgramMemory& memory) {
    if (segment.first == 0) segment = memory.segment_of(reinterpret_cast<Address>(block));
  });
  if (size != nullptr) *size = segment.second;
  return reinterpret_cast<void*>(segment.first);
}

ENTRY void allocbench_torch_begin_pool(int device, ProgramMemory::GraphPool pool,
                                       ProgramMemory::Captured captured) {
  if (torch_program == nullptr) return;
  for_torch([&] { torch_program.load()->on(device).begin_capture(pool, std::move(captured)); });
}

ENTRY void allocbench_torch_end_pool(int device, ProgramMemory::GraphPool pool) {
  if (ProgramMemory* const memory = torch_memory(device)) memory->end_capture(pool);
}

ENTRY void allocbench_torch_release_pool(int device, ProgramMemory::GraphPool pool) {
  if (ProgramMemory* const memory = torch_memory(device)) memory->release(pool);
}

// -- CuPy: `program` is the `param` argument of CFunctionAllocator

namespace {
thread_local void* cupy_stream = nullptr;
}

ENTRY void allocbench_cupy_use_stream(void* stream) { cupy_stream = stream; }

ENTRY void* allocbench_cupy_malloc(void* program, std::size_t size, int device) {
  try {
    return reinterpret_cast<void*>(
        request(static_cast<Program*>(program), size, device, cupy_stream, failure_of_this_thread));
  } catch (std::exception const& error) {
    failure_of_this_thread = error.what();
    return nullptr;
  }
}

ENTRY void allocbench_cupy_free(void* program, void* block, int device) {
  if (block != nullptr) free_block(static_cast<Program*>(program), block, device);
}

// torch_errors.cpp: reporting out-of-memory errors to PyTorch.
// SPDX-License-Identifier: Apache-2.0
//
// Programs without PyTorch load this library too, so it cannot be linked to the libraries with
// PyTorch's class c10::OutOfMemoryError. The constructor, the virtual table and the type of the
// class are looked up by their symbols in the libraries that the program has loaded. The
// constructor is in libc10; the others are in libc10 from 2.13 on and in libc10_cuda before. The
// symbol of the constructor includes its parameter types. Up to 2.5, PyTorch's CUDA wheels use the
// std::string of before C++11: see torch_errors_old_string.cpp.
#include "torch_errors.hpp"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstddef>
#include <exception>
#include <stdexcept>
#include <typeinfo>

namespace allocbench {
namespace {

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

}  // namespace

bool torch_is_loaded() { return find(kType) != nullptr; }

void throw_to_torch(std::string const& message) {
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

}  // namespace allocbench

// torch_errors.cpp: reporting out-of-memory errors to PyTorch.
// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's class, c10::OutOfMemoryError, is in libraries that must not be linked to, for programs
// without PyTorch load this one too. Its constructor, table and type are found by name in those
// that the program has loaded: the constructor is libc10's, the others are libc10's from 2.13 on
// and libc10_cuda's before. The name of the constructor holds the types of its parameters. Up
// to 2.5, wheels for CUDA have the std::string of before C++11: see torch_errors_old_string.cpp.
#include "torch_errors.hpp"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstddef>
#include <exception>
#include <stdexcept>
#include <typeinfo>

#include "torch_errors_old_string.hpp"

namespace allocbench {
namespace {

constexpr char const* kLibraries[] = {"libc10.so", "libc10_cuda.so"};
constexpr char const* kType = "_ZTIN3c1016OutOfMemoryErrorE";
constexpr char const* kTable = "_ZTVN3c1016OutOfMemoryErrorE";
// Error(SourceLocation, std::string), which OutOfMemoryError inherits
constexpr char const* kConstructor =
    "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
constexpr char const* kOldStringConstructor = "_ZN3c105ErrorC1ENS_14SourceLocationESs";
constexpr std::size_t kRoom = 4096;  // bytes for the exception, which has some 200

void* find(char const* symbol) {
  for (char const* name : kLibraries)
    if (void* const library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD)) {
      void* const found = dlsym(library, symbol);
      dlclose(library);  // it stays loaded
      if (found != nullptr) return found;
    }
  return nullptr;
}

void destroy(void* exception) { static_cast<std::exception*>(exception)->~exception(); }

using Constructor = void (*)(void* self, SourceLocation, std::string);

// Makes the base of the exception; false when this PyTorch has no such constructor.
bool construct(void* at, std::string const& text) {
  constexpr SourceLocation kHere = {"allocbench_torch_alloc", "entry_points.cpp", 0};
  if (auto const now = reinterpret_cast<Constructor>(find(kConstructor))) {
    now(at, kHere, text);
    return true;
  }
  void* const before = find(kOldStringConstructor);
  return before != nullptr && construct_with_old_string(before, at, kHere, text.c_str());
}

}  // namespace

void throw_to_torch(std::string const& message) {
  std::string const text = "CUDA out of memory. " + message;
  auto* const type = static_cast<std::type_info*>(find(kType));
  auto** const table = static_cast<void**>(find(kTable));
  if (type != nullptr && table != nullptr) {
    void* const thrown = abi::__cxa_allocate_exception(kRoom);
    if (construct(thrown, text)) {
      *static_cast<void***>(thrown) = table + 2;  // past the offset and the type
      abi::__cxa_throw(thrown, type, &destroy);
    }
    abi::__cxa_free_exception(thrown);
  }
  throw std::runtime_error(text);
}

}  // namespace allocbench

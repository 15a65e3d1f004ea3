// torch_errors.cpp: reporting out-of-memory errors to PyTorch.
// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's class c10::OutOfMemoryError is in a library that this one must not link to, because
// programs without PyTorch load it as well. Its constructor, vtable and type info are looked up by
// name in the library that the program has loaded. The mangled name of the constructor contains its
// parameter types, so an incompatible ABI (std::string before C++11, say) is not found.
#include "torch_errors.hpp"

#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <typeinfo>

namespace allocbench {
namespace {

constexpr char const* kLibrary = "libc10.so";
constexpr char const* kType = "_ZTIN3c1016OutOfMemoryErrorE";
constexpr char const* kTable = "_ZTVN3c1016OutOfMemoryErrorE";
// Error(SourceLocation, std::string), which OutOfMemoryError inherits
constexpr char const* kConstructor =
    "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
constexpr std::size_t kRoom = 4096;  // bytes for the exception, which needs about 200

struct SourceLocation {
  char const* function;
  char const* file;
  std::uint32_t line;
};

void destroy(void* exception) { static_cast<std::exception*>(exception)->~exception(); }

}  // namespace

void throw_to_torch(std::string const& message) {
  std::string const text = "CUDA out of memory. " + message;
  if (void* const library = dlopen(kLibrary, RTLD_LAZY | RTLD_NOLOAD)) {
    using Constructor = void (*)(void* self, SourceLocation, std::string);
    auto const construct = reinterpret_cast<Constructor>(dlsym(library, kConstructor));
    auto* const type = static_cast<std::type_info*>(dlsym(library, kType));
    auto** const table = static_cast<void**>(dlsym(library, kTable));
    if (construct != nullptr && type != nullptr && table != nullptr) {
      void* const thrown = abi::__cxa_allocate_exception(kRoom);
      construct(thrown, {"allocbench_torch_alloc", "entry_points.cpp", 0}, text);
      *static_cast<void***>(thrown) = table + 2;  // past the offset to top and the type info
      abi::__cxa_throw(thrown, type, &destroy);
    }
  }
  throw std::runtime_error(text);
}

}  // namespace allocbench

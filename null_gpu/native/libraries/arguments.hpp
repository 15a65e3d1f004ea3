// native/libraries/arguments.hpp: the arguments of functions of which only one matters.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdarg>

namespace allocbench::null_gpu {

// The pointer that is argument number `index`, counted from 0. The callers are declared variadic,
// because this ABI passes integers and pointers in the same way to variadic functions as to others.
template <class Number>
Number* argument(std::va_list arguments, int index) {
  void* pointer = nullptr;
  for (int argument = 1; argument <= index; ++argument) pointer = va_arg(arguments, void*);
  return static_cast<Number*>(pointer);
}

}  // namespace allocbench::null_gpu

// native/subscripts.cpp: a Python function in the slot of a type that implements `value[index]`.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/api.hpp"

namespace {

using Call = void* (*)(void* function, ...);
Call call_function = nullptr;
void* called = nullptr;

}  // namespace

// The function for the slot. An exception of the Python function reaches the program.
NULL_GPU_API void* null_subscript(void* value, void* index) {
  return call_function(called, value, index, nullptr);
}

// call: PyObject_CallFunctionObjArgs; function: what it calls with the value and the index.
NULL_GPU_API void null_on_subscript(Call call, void* function) {
  call_function = call;
  called = function;
}

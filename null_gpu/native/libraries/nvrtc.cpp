// native/libraries/nvrtc.cpp: NVRTC and CUPTI, without compiling or tracing anything.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/values.hpp"

using namespace allocbench::null_gpu;

namespace {

constexpr Size kCode = 16;  // bytes of a compiled program

int size_is(Size* out, Size size) {
  *out = size;
  return kSuccess;
}

}  // namespace

NULL_GPU_API int null_nvrtcVersion(int* major, int* minor) {
  int const version = Machine::get().settings().cuda_version;
  *major = version / 1000;
  *minor = version % 1000 / 10;
  return kSuccess;
}

NULL_GPU_DOES(nvrtcCreateProgram, (Handle * program, char const* source),
              compiled(*program = Machine::get().new_handle(), source))
NULL_GPU_TEXTS(nvrtcGetErrorString)
NULL_GPU_DOES(nvrtcGetLoweredName, (Handle, char const* name, char const** lowered),
              *lowered = name)

NULL_GPU_API int null_nvrtcGetPTXSize(Handle, Size* size) { return size_is(size, kCode); }
NULL_GPU_ALIASES(null_nvrtcGetPTXSize, null_nvrtcGetCUBINSize);
NULL_GPU_API int null_nvrtcGetProgramLogSize(Handle, Size* size) { return size_is(size, 1); }
NULL_GPU_DOES(nvrtcGetPTX, (Handle program, char* out),
              std::memcpy(std::memset(out, 0, kCode), &program, sizeof program))
NULL_GPU_ALIASES(null_nvrtcGetPTX, null_nvrtcGetCUBIN);
NULL_GPU_DOES(nvrtcGetProgramLog, (Handle, char* log), *log = '\0')
NULL_GPU_DOES(cuptiGetResultString, (int, char const** text), *text = "the null GPU has no CUPTI")

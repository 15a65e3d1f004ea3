// native/libraries/cublas.cpp: cuBLAS and cuBLASLt.
// SPDX-License-Identifier: Apache-2.0
//
// Functions that only compute are not here: `symbols.py` maps them to null_work.
#include <cstdarg>
#include <cstring>

#include "null_gpu/native/kernels.hpp"
#include "null_gpu/native/libraries/arguments.hpp"
#include "null_gpu/native/machine.hpp"

using namespace allocbench::null_gpu;

namespace {

struct Heuristic {  // cublasLtMatmulHeuristicResult_t
  std::uint64_t algorithm[8];
  Size workspace;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Heuristic) == 96);

int make(Handle* handle) {
  *handle = Machine::get().new_handle();
  return kSuccess;
}

}  // namespace

NULL_GPU_API int null_cublasCreate_v2(Handle* handle) { return make(handle); }
NULL_GPU_API int null_cublasLtCreate(Handle* handle) { return make(handle); }
NULL_GPU_API int null_cublasLtMatmulDescCreate(Handle* out, int, int) { return make(out); }
NULL_GPU_API int null_cublasLtMatmulPreferenceCreate(Handle* out) { return make(out); }
NULL_GPU_API int null_cublasLtMatrixLayoutCreate(Handle* out) { return make(out); }

NULL_GPU_API int null_cublasGetMathMode(Handle, int* mode) {
  *mode = 0;
  return kSuccess;
}

NULL_GPU_API int null_cublasGetPointerMode_v2(Handle, int* mode) {
  *mode = 0;
  return kSuccess;
}

NULL_GPU_API int null_cublasGetVersion_v2(Handle, int* version) {
  *version = Machine::get().settings().cuda_version / 1000 * 10000;
  return kSuccess;
}

NULL_GPU_API Size null_cublasLtGetVersion() {
  return static_cast<Size>(Machine::get().settings().cuda_version / 1000 * 10000);
}

// Batched functions that write to the host whether their arguments are valid.
#define BATCHED(name, index)                                       \
  NULL_GPU_API int null_cublas##name##Batched(Handle first, ...) { \
    std::va_list arguments;                                        \
    va_start(arguments, first);                                    \
    auto* const invalid = argument<int>(arguments, index);         \
    va_end(arguments);                                             \
    if (invalid != nullptr) *invalid = 0;                          \
    launched(nullptr);                                             \
    return kSuccess;                                               \
  }
#define BATCHED_OF_EACH_TYPE(name, index) \
  BATCHED(S##name, index) BATCHED(D##name, index) BATCHED(C##name, index) BATCHED(Z##name, index)

BATCHED_OF_EACH_TYPE(geqrf, 6)
BATCHED_OF_EACH_TYPE(getrs, 9)
BATCHED_OF_EACH_TYPE(gels, 9)

// Offers one algorithm without a workspace: PyTorch allocates a workspace of a fixed size itself.
NULL_GPU_API int null_cublasLtMatmulAlgoGetHeuristic(Handle, Handle, Handle, Handle, Handle, Handle,
                                                     Handle, int wanted, Heuristic* result,
                                                     int* count) {
  if (wanted < 1) return 7;  // CUBLAS_STATUS_INVALID_VALUE
  *result = {};
  result->algorithm[0] = 1;
  result->waves = 1;
  *count = 1;
  return kSuccess;
}

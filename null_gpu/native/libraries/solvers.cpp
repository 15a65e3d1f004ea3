// native/libraries/solvers.cpp: cuSOLVER, cuSPARSE and cuFFT, with workspaces.
// SPDX-License-Identifier: Apache-2.0
#include <cstdarg>

#include "null_gpu/native/libraries/arguments.hpp"
#include "null_gpu/native/libraries/workspaces.hpp"
#include "null_gpu/native/machine.hpp"

using namespace allocbench::null_gpu;

namespace {

int make(Handle* handle) {
  *handle = Machine::get().new_handle();
  return kSuccess;
}

// Bytes of a complex element by the type that a transform computes in (cudaDataType_t).
Size complex_bytes(int type) {
  constexpr int kDouble = 1, kHalf = 2, kDoubleComplex = 5, kHalfComplex = 6, kBrain = 14,
                kBrainComplex = 15;
  if (type == kDouble || type == kDoubleComplex) return 16;
  bool const half =
      type == kHalf || type == kHalfComplex || type == kBrain || type == kBrainComplex;
  return half ? 4 : 8;
}

// Whether the elements of one side of a transform are real numbers (cudaDataType_t).
bool is_real(int type) {
  constexpr int kFloat = 0, kDouble = 1, kHalf = 2, kBrain = 14;
  return type == kFloat || type == kDouble || type == kHalf || type == kBrain;
}

// Transforms of at most so many elements need no workspace; measured on an H100.
constexpr Size kInSharedMemory = 4096;

// Bytes of a number of cuSOLVER, by the letter of its type.
constexpr Size bytes_of(char letter) { return letter == 'S' ? 4 : letter == 'Z' ? 16 : 8; }

}  // namespace

// Writes how much workspace there is, in units of `unit` bytes, through the argument at `index`.
#define WORKSPACE(name, rule, Number, unit, index)                                        \
  NULL_GPU_API int null_##name(Handle first, ...) {                                       \
    std::va_list arguments;                                                               \
    va_start(arguments, first);                                                           \
    auto* const out = argument<Number>(arguments, index);                                 \
    va_end(arguments);                                                                    \
    Size const count = (assumption(rule).bytes + (unit) - 1) / (unit);                    \
    if (out != nullptr) *out = static_cast<Number>(asked(rule, count * (unit)) / (unit)); \
    return kSuccess;                                                                      \
  }

// In bytes on the device, and on the host, where no workspace is modelled.
#define TWO_WORKSPACES(name, device, host)                                                        \
  NULL_GPU_API int null_##name(Handle first, ...) {                                               \
    std::va_list arguments;                                                                       \
    va_start(arguments, first);                                                                   \
    auto* const on_device = argument<Size>(arguments, device);                                    \
    va_end(arguments);                                                                            \
    va_start(arguments, first);                                                                   \
    auto* const on_host = argument<Size>(arguments, host);                                        \
    va_end(arguments);                                                                            \
    if (on_device != nullptr) *on_device = asked(Rule::kSolver, assumption(Rule::kSolver).bytes); \
    if (on_host != nullptr) *on_host = 0;                                                         \
    return kSuccess;                                                                              \
  }

#define SOLVER(letter, name, index) \
  WORKSPACE(cusolverDn##letter##name##_bufferSize, Rule::kSolver, int, bytes_of(#letter[0]), index)
#define REAL(name, index) SOLVER(S, name, index) SOLVER(D, name, index)
#define COMPLEX(name, index) SOLVER(C, name, index) SOLVER(Z, name, index)
#define BOTH(name, index) REAL(name, index) COMPLEX(name, index)

BOTH(getrf, 5)
BOTH(geqrf, 5)
BOTH(potrf, 5)
BOTH(sytrf, 4)
BOTH(gesvd, 3)
BOTH(gesvdj, 12)
BOTH(gesvdjBatched, 11)
BOTH(gesvdaStridedBatched, 16)
REAL(orgqr, 7)
COMPLEX(ungqr, 7)
REAL(ormqr, 11)
COMPLEX(unmqr, 11)
REAL(syevd, 7)
COMPLEX(heevd, 7)
REAL(syevj, 7)
COMPLEX(heevj, 7)
REAL(syevjBatched, 7)
COMPLEX(heevjBatched, 7)
TWO_WORKSPACES(cusolverDnXgeqrf_bufferSize, 10, 11)
TWO_WORKSPACES(cusolverDnXpotrf_bufferSize, 8, 9)
TWO_WORKSPACES(cusolverDnXsyevd_bufferSize, 11, 12)
TWO_WORKSPACES(cusolverDnXsyevBatched_bufferSize, 11, 12)
TWO_WORKSPACES(cusolverDnXsytrs_bufferSize, 11, 12)
TWO_WORKSPACES(cusolverDnXgeev_bufferSize, 15, 16)
WORKSPACE(cusparseSpMM_bufferSize, Rule::kSparse, Size, 1, 10)
WORKSPACE(cusparseSDDMM_bufferSize, Rule::kSparse, Size, 1, 10)
WORKSPACE(cusparseSpSM_bufferSize, Rule::kSparse, Size, 1, 10)
WORKSPACE(cusparseSpMV_bufferSize, Rule::kSparse, Size, 1, 9)
WORKSPACE(cusparseSpSV_bufferSize, Rule::kSparse, Size, 1, 9)
WORKSPACE(cusparseXcsrsort_bufferSizeExt, Rule::kSparse, Size, 1, 6)
WORKSPACE(cusparseXcoosort_bufferSizeExt, Rule::kSparse, Size, 1, 6)

NULL_GPU_API int null_cusolverDnCreate(Handle* handle) { return make(handle); }
NULL_GPU_API int null_cusolverDnCreateParams(Handle* handle) { return make(handle); }
NULL_GPU_API int null_cusolverDnCreateSyevjInfo(Handle* handle) { return make(handle); }
NULL_GPU_API int null_cusolverDnCreateGesvdjInfo(Handle* handle) { return make(handle); }
NULL_GPU_API int null_cusparseCreate(Handle* handle) { return make(handle); }
NULL_GPU_API int null_cusparseCreateMatDescr(Handle* handle) { return make(handle); }
NULL_GPU_API int null_cusparseCreateCsr(Handle* handle) { return make(handle); }
NULL_GPU_API int null_cusparseCreateCoo(Handle* handle) { return make(handle); }
NULL_GPU_API int null_cusparseCreateDnMat(Handle* handle) { return make(handle); }
NULL_GPU_API int null_cusparseCreateDnVec(Handle* handle) { return make(handle); }
NULL_GPU_API int null_cusparseSpSM_createDescr(Handle* handle) { return make(handle); }
NULL_GPU_API int null_cusparseSpSV_createDescr(Handle* handle) { return make(handle); }

NULL_GPU_API char const* null_cusparseGetErrorString(int status) {
  return status == kSuccess ? "success" : "not supported by the null GPU";
}

NULL_GPU_API int null_cufftCreate(int* plan) {
  static std::atomic<int> last = 0;
  *plan = ++last;
  return kSuccess;
}

NULL_GPU_API int null_cufftXtMakePlanMany(int, int rank, long long const* sizes, long long*,
                                          long long, long long, int input, long long*, long long,
                                          long long, int output, long long batch, Size* workspace,
                                          int type) {
  auto const& assumed = assumption(Rule::kFft);
  bool const half = is_real(input) || is_real(output);
  Size elements = static_cast<Size>(batch), stored = elements;
  bool long_axis = false;
  for (int axis = 0; axis < rank; ++axis) {
    auto const size = static_cast<Size>(sizes[axis]);
    elements *= size;
    stored *= half && axis + 1 == rank ? size / 2 + 1 : size;
    long_axis = long_axis || size > kInSharedMemory;
  }
  Size const once = elements * complex_bytes(type);
  Size bytes = assumed.bytes;
  if (assumed.is("once")) bytes = once;
  if (assumed.is("worst")) bytes = 8 * once;
  if (assumed.is("shared")) bytes = long_axis ? stored * complex_bytes(type) : 0;
  *workspace = asked(Rule::kFft, bytes);
  return kSuccess;
}

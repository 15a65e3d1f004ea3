// null_gpu/libraries/solvers.cpp: handles and empty workspaces of cuSOLVER, cuSPARSE and cuFFT.
// SPDX-License-Identifier: Apache-2.0
//
// A workspace of 0 bytes is a model: NVIDIA does not document the sizes.
#include <cstdarg>

#include "null_gpu/machine.hpp"

using namespace allocbench::null_gpu;

namespace {

int make(Handle* handle) {
  *handle = Machine::get().new_handle();
  return kSuccess;
}

// Writes 0 through the pointer that is argument number `index`, counted from 0. The functions below
// are declared variadic, because this ABI passes integers and pointers in the same way to variadic
// functions as to others.
template <class Number>
int zero(std::va_list arguments, int index) {
  void* pointer = nullptr;
  for (int argument = 1; argument <= index; ++argument) pointer = va_arg(arguments, void*);
  if (pointer != nullptr) *static_cast<Number*>(pointer) = 0;
  return kSuccess;
}

}  // namespace

#define WORKSPACE(name, Number, index)                 \
  NULL_GPU_API int null_##name(Handle first, ...) {    \
    std::va_list arguments;                            \
    va_start(arguments, first);                        \
    int const status = zero<Number>(arguments, index); \
    va_end(arguments);                                 \
    return status;                                     \
  }

// Sizes on the device and on the host.
#define TWO_WORKSPACES(name, device, host)          \
  NULL_GPU_API int null_##name(Handle first, ...) { \
    std::va_list arguments;                         \
    va_start(arguments, first);                     \
    zero<Size>(arguments, device);                  \
    va_end(arguments);                              \
    va_start(arguments, first);                     \
    zero<Size>(arguments, host);                    \
    va_end(arguments);                              \
    return kSuccess;                                \
  }

#define REAL(name, index)                               \
  WORKSPACE(cusolverDnS##name##_bufferSize, int, index) \
  WORKSPACE(cusolverDnD##name##_bufferSize, int, index)
#define COMPLEX(name, index)                            \
  WORKSPACE(cusolverDnC##name##_bufferSize, int, index) \
  WORKSPACE(cusolverDnZ##name##_bufferSize, int, index)
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
WORKSPACE(cusparseSpMM_bufferSize, Size, 10)
WORKSPACE(cusparseSDDMM_bufferSize, Size, 10)
WORKSPACE(cusparseSpSM_bufferSize, Size, 10)
WORKSPACE(cusparseSpMV_bufferSize, Size, 9)
WORKSPACE(cusparseSpSV_bufferSize, Size, 9)
WORKSPACE(cusparseXcsrsort_bufferSizeExt, Size, 6)
WORKSPACE(cusparseXcoosort_bufferSizeExt, Size, 6)

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

NULL_GPU_API int null_cufftXtMakePlanMany(int, int, void*, void*, long long, long long, int, void*,
                                          long long, long long, int, long long, Size* workspace) {
  *workspace = 0;
  return kSuccess;
}

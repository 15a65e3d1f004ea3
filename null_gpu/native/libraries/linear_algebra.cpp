// native/libraries/linear_algebra.cpp: cuBLAS, cuSOLVER, cuSPARSE and cuFFT.
// SPDX-License-Identifier: Apache-2.0
//
// Functions that only compute are not here: `stubs.py` maps them to null_work. cuSOLVER, cuSPARSE
// and cuFFT say how much workspace they need.
#include <atomic>

#include "null_gpu/native/libraries/workspaces.hpp"
#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/values.hpp"

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

}  // namespace

NULL_GPU_DOES(cublasCreate_v2, (Handle * handle), *handle = Machine::get().new_handle())
NULL_GPU_ALIASES(null_cublasCreate_v2, null_cublasLtCreate, null_cublasLtMatmulDescCreate,
                 null_cublasLtMatmulPreferenceCreate, null_cublasLtMatrixLayoutCreate);
NULL_GPU_DOES(cublasGetMathMode, (Handle, int* mode), *mode = 0)
NULL_GPU_ALIASES(null_cublasGetMathMode, null_cublasGetPointerMode_v2);
NULL_GPU_DOES(cublasGetVersion_v2, (Handle, int* version),
              *version = Machine::get().settings().cuda_version / 1000 * 10000)

NULL_GPU_API Size null_cublasLtGetVersion() {
  return static_cast<Size>(Machine::get().settings().cuda_version / 1000 * 10000);
}

// Batched functions that write to the host whether their arguments are valid.
#define BATCHED(name, index)                                       \
  NULL_GPU_API int null_cublas##name##Batched(Handle first, ...) { \
    NULL_GPU_ARGUMENT(int, invalid, index)                         \
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

namespace {

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

// In bytes on the device, and on the host, where no workspace is modelled.
#define TWO_WORKSPACES(name, device, host)                                                        \
  NULL_GPU_API int null_##name(Handle first, ...) {                                               \
    NULL_GPU_ARGUMENT(Size, on_device, device)                                                    \
    NULL_GPU_ARGUMENT(Size, on_host, host)                                                        \
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

NULL_GPU_ALIASES(null_cublasCreate_v2, null_cusolverDnCreate, null_cusolverDnCreateParams,
                 null_cusolverDnCreateSyevjInfo, null_cusolverDnCreateGesvdjInfo,
                 null_cusparseCreate, null_cusparseCreateMatDescr, null_cusparseCreateCsr,
                 null_cusparseCreateCoo, null_cusparseCreateDnMat, null_cusparseCreateDnVec,
                 null_cusparseSpSM_createDescr, null_cusparseSpSV_createDescr);
NULL_GPU_TEXTS(cusparseGetErrorString)
NULL_GPU_ALIASES(null_cusparseGetErrorString, null_cusparseGetErrorName,
                 null_cusparseLtGetErrorName, null_cusparseLtGetErrorString,
                 null_cublasGetStatusName, null_cublasGetStatusString, null_cublasLtGetStatusName,
                 null_cublasLtGetStatusString);

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

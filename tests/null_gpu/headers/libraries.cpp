// Compares what the null GPU writes with the headers of cuBLASLt and NCCL; argument: its library.
// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <nccl.h>

#include "core.hpp"
#include "null_gpu/native/api.hpp"

static_assert(allocbench::null_gpu::kCublasNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(sizeof(ncclUniqueId) == 128);
static_assert(ncclInt8 == 0 && ncclUint8 == 1 && ncclInt32 == 2 && ncclUint32 == 3);
static_assert(ncclInt64 == 4 && ncclUint64 == 5 && ncclFloat16 == 6 && ncclFloat32 == 7);
static_assert(ncclFloat64 == 8 && ncclBfloat16 == 9 && ncclFloat8e4m3 == 10);
static_assert(ncclNumOps == 5);

int main(int, char** arguments) {
  if (!load(arguments[1], "")) return 2;
  Room<cublasLtMatmulHeuristicResult_t> room;
  int count = 0;
  NULL_GPU(cublasLtMatmulAlgoGetHeuristic)
  (nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 1, &room.here, &count);
  room.check_behind("behind cublasLtMatmulHeuristicResult_t");
  check("results", count, 1);
  check("state", room.here.state, CUBLAS_STATUS_SUCCESS);
  check("workspace", static_cast<long long>(room.here.workspaceSize), 0);
  check("waves", static_cast<long long>(room.here.wavesCount), 1);
  return wrong == 0 ? 0 : 1;
}

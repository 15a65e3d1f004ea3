// Compares what the null GPU writes with the headers of cuBLASLt and NCCL; argument: its library.
// SPDX-License-Identifier: Apache-2.0
#include <cublasLt.h>
#include <dlfcn.h>
#include <nccl.h>

#include <cstdio>
#include <cstring>

#include "null_gpu/api.hpp"

static_assert(allocbench::null_gpu::kCublasNotSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(sizeof(ncclUniqueId) == 128);
static_assert(ncclInt8 == 0 && ncclUint8 == 1 && ncclInt32 == 2 && ncclUint32 == 3);
static_assert(ncclInt64 == 4 && ncclUint64 == 5 && ncclFloat16 == 6 && ncclFloat32 == 7);
static_assert(ncclFloat64 == 8 && ncclBfloat16 == 9 && ncclFloat8e4m3 == 10);
static_assert(ncclNumOps == 5);

int main(int, char** arguments) {
  void* const core = dlopen(arguments[1], RTLD_NOW);
  if (core == nullptr) return 2;
  using Heuristic = decltype(&cublasLtMatmulAlgoGetHeuristic);
  auto const find = reinterpret_cast<Heuristic>(dlsym(core, "null_cublasLtMatmulAlgoGetHeuristic"));
  struct {
    cublasLtMatmulHeuristicResult_t result;
    unsigned char behind[64];
  } room;
  std::memset(&room, 0x5a, sizeof room);
  int count = 0;
  find(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 1, &room.result, &count);
  for (auto const byte : room.behind) {
    if (byte != 0x5a) return 3;
  }
  auto const& found = room.result;
  bool const right = count == 1 && found.state == CUBLAS_STATUS_SUCCESS &&
                     found.workspaceSize == 0 && found.wavesCount == 1.0f;
  if (!right) std::puts("cublasLtMatmulHeuristicResult_t");
  return right ? 0 : 1;
}

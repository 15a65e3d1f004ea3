// native/libraries/cudnn_legacy.hpp: convolutions of cuDNN's legacy API.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu::cudnn {

// Of each direction: CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, _BWD_DATA_ALGO_1 and
// _BWD_FILTER_ALGO_1, which PyTorch takes without a choice if it must be deterministic.
inline constexpr int kWithWorkspace = 1;
// CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, _BWD_DATA_ALGO_0 and _BWD_FILTER_ALGO_0.
inline constexpr int kWithoutWorkspace = 0;
inline constexpr int kDeterministic = 1;
inline constexpr int kDefaultMath = 0, kTensorOperations = 1;  // cudnnMathType_t

// cudnnConvolutionFwdAlgoPerf_t; those of the other directions have the same layout.
struct AlgorithmPerformance {
  int algorithm, status;
  float milliseconds;
  Size memory;  // bytes of workspace
  int determinism, math;
  int reserved[3] = {};
};
static_assert(sizeof(AlgorithmPerformance) == 48 && offsetof(AlgorithmPerformance, memory) == 16);

}  // namespace allocbench::null_gpu::cudnn

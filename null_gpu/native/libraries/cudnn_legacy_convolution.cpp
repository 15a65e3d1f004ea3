// native/libraries/cudnn_legacy_convolution.cpp: convolutions in cuDNN's legacy API.
// SPDX-License-Identifier: Apache-2.0
//
// PyTorch uses this API if TORCH_CUDNN_V8_API_DISABLED=1. For each of the three directions there
// are two algorithms: one with the workspace of the rule, and one without. Their workspaces are
// those of the backend API.
#include <algorithm>
#include <vector>

#include "null_gpu/native/libraries/cudnn.hpp"
#include "null_gpu/native/libraries/workspaces.hpp"
#include "null_gpu/native/values.hpp"

using namespace allocbench::null_gpu;
using namespace allocbench::null_gpu::cudnn;

namespace {

Size workspace_of(Handle input, Handle filter, Handle output, Pass pass) {
  auto& tensors = Tensors::get();
  return cudnn::workspace_of({tensors.of(input), tensors.of(filter), tensors.of(output), pass});
}

// Writes the algorithms whose workspace has at most `limit` bytes, the fastest first.
int offer(Size workspace, Size limit, int wanted, int* count, AlgorithmPerformance* out) {
  std::vector<AlgorithmPerformance> found;
  if (workspace != 0 && workspace <= limit)
    found.push_back({kWithWorkspace, kSuccess, 1.0F, workspace, kDeterministic, kTensorOperations});
  found.push_back({kWithoutWorkspace, kSuccess, 2.0F, 0, kDeterministic, kDefaultMath});
  *count = std::min(wanted, static_cast<int>(found.size()));
  std::copy_n(found.begin(), *count, out);
  return kSuccess;
}

int answer(int algorithm, Size workspace, Size* bytes) {
  if (algorithm != kWithWorkspace && algorithm != kWithoutWorkspace) return kCudnnNotSupported;
  *bytes = algorithm == kWithWorkspace ? workspace : 0;
  return kSuccess;
}

constexpr Size kNoLimit = ~Size{0};

}  // namespace

// The functions of a direction, whose descriptors come in the order `one`, `two`, `three`.
#define CONVOLUTION(Direction, one, two, three, pass)                                        \
  NULL_GPU_API int null_cudnnGetConvolution##Direction##Algorithm_v7(                        \
      Handle, Handle one, Handle two, Handle, Handle three, int wanted, int* count,          \
      AlgorithmPerformance* out) {                                                           \
    return offer(workspace_of(input, filter, output, pass), kNoLimit, wanted, count, out);   \
  }                                                                                          \
  NULL_GPU_API int null_cudnnFindConvolution##Direction##AlgorithmEx(                        \
      Handle, Handle one, void const*, Handle two, void const*, Handle, Handle three, void*, \
      int wanted, int* count, AlgorithmPerformance* out, void*, Size limit) {                \
    launched(nullptr);                                                                       \
    return offer(workspace_of(input, filter, output, pass), limit, wanted, count, out);      \
  }                                                                                          \
  NULL_GPU_API int null_cudnnGetConvolution##Direction##WorkspaceSize(                       \
      Handle, Handle one, Handle two, Handle, Handle three, int algorithm, Size* bytes) {    \
    return answer(algorithm, workspace_of(input, filter, output, pass), bytes);              \
  }

CONVOLUTION(Forward, input, filter, output, Pass::kForward)
CONVOLUTION(BackwardData, filter, output, input, Pass::kInputGradient)
CONVOLUTION(BackwardFilter, input, output, filter, Pass::kFilterGradient)

NULL_GPU_API int null_cudnnConvolutionForward(Handle, void const*, Handle, void const*, Handle,
                                              void const*, Handle, int, void* workspace,
                                              Size bytes) {
  used(Rule::kConvolution, workspace, bytes);
  launched(nullptr);
  return kSuccess;
}
NULL_GPU_ALIASES(null_cudnnConvolutionForward, null_cudnnConvolutionBiasActivationForward,
                 null_cudnnConvolutionBackwardData, null_cudnnConvolutionBackwardFilter);

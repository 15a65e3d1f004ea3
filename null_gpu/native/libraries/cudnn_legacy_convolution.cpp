// native/libraries/cudnn_legacy_convolution.cpp: convolutions in cuDNN's legacy API.
// SPDX-License-Identifier: Apache-2.0
//
// PyTorch uses this API if TORCH_CUDNN_V8_API_DISABLED=1. For each of the three directions there
// are two algorithms: one with the workspace of the rule, and one without. Their workspaces are
// those of the backend API.
#include <algorithm>
#include <vector>

#include "null_gpu/native/kernels.hpp"
#include "null_gpu/native/libraries/cudnn.hpp"
#include "null_gpu/native/libraries/cudnn_convolution.hpp"
#include "null_gpu/native/libraries/cudnn_legacy.hpp"
#include "null_gpu/native/libraries/workspaces.hpp"

using namespace allocbench::null_gpu;
using namespace allocbench::null_gpu::cudnn;

namespace {

Shape shape_of(Handle descriptor) {
  Tensor const tensor = Tensors::get().of(descriptor);
  return {tensor.type,
          {tensor.sizes.begin(), tensor.sizes.end()},
          {tensor.strides.begin(), tensor.strides.end()}};
}

Size workspace_of(Handle input, Handle filter, Handle output, Pass pass) {
  return cudnn::workspace_of({shape_of(input), shape_of(filter), shape_of(output), pass});
}

// Writes the algorithms whose workspace has at most `limit` bytes, the fastest first.
int offer(Size workspace, Size limit, int wanted, int* count, AlgorithmPerformance* out) {
  std::vector<AlgorithmPerformance> found;
  if (workspace != 0 && workspace <= limit) {
    found.push_back({kWithWorkspace, kSuccess, 1.0F, workspace, kDeterministic, kTensorOperations});
  }
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

int run(void const* workspace, Size bytes) {
  used(Rule::kConvolution, workspace, bytes);
  launched(nullptr);
  return kSuccess;
}

constexpr Size kNoLimit = ~Size{0};

}  // namespace

// -- forward

NULL_GPU_API int null_cudnnGetConvolutionForwardAlgorithm_v7(Handle, Handle input, Handle filter,
                                                             Handle, Handle output, int wanted,
                                                             int* count,
                                                             AlgorithmPerformance* out) {
  return offer(workspace_of(input, filter, output, Pass::kForward), kNoLimit, wanted, count, out);
}

NULL_GPU_API int null_cudnnFindConvolutionForwardAlgorithmEx(Handle, Handle input, void const*,
                                                             Handle filter, void const*, Handle,
                                                             Handle output, void*, int wanted,
                                                             int* count, AlgorithmPerformance* out,
                                                             void*, Size limit) {
  launched(nullptr);
  return offer(workspace_of(input, filter, output, Pass::kForward), limit, wanted, count, out);
}

NULL_GPU_API int null_cudnnGetConvolutionForwardWorkspaceSize(Handle, Handle input, Handle filter,
                                                              Handle, Handle output, int algorithm,
                                                              Size* bytes) {
  return answer(algorithm, workspace_of(input, filter, output, Pass::kForward), bytes);
}

NULL_GPU_API int null_cudnnConvolutionForward(Handle, void const*, Handle, void const*, Handle,
                                              void const*, Handle, int, void* workspace, Size bytes,
                                              void const*, Handle, void*) {
  return run(workspace, bytes);
}

NULL_GPU_API int null_cudnnConvolutionBiasActivationForward(
    Handle, void const*, Handle, void const*, Handle, void const*, Handle, int, void* workspace,
    Size bytes, void const*, Handle, void const*, Handle, void const*, Handle, Handle, void*) {
  return run(workspace, bytes);
}

// -- the gradient of the input

NULL_GPU_API int null_cudnnGetConvolutionBackwardDataAlgorithm_v7(Handle, Handle filter,
                                                                  Handle output, Handle,
                                                                  Handle input, int wanted,
                                                                  int* count,
                                                                  AlgorithmPerformance* out) {
  return offer(workspace_of(input, filter, output, Pass::kInputGradient), kNoLimit, wanted, count,
               out);
}

NULL_GPU_API int null_cudnnFindConvolutionBackwardDataAlgorithmEx(
    Handle, Handle filter, void const*, Handle output, void const*, Handle, Handle input, void*,
    int wanted, int* count, AlgorithmPerformance* out, void*, Size limit) {
  launched(nullptr);
  return offer(workspace_of(input, filter, output, Pass::kInputGradient), limit, wanted, count,
               out);
}

NULL_GPU_API int null_cudnnGetConvolutionBackwardDataWorkspaceSize(Handle, Handle filter,
                                                                   Handle output, Handle,
                                                                   Handle input, int algorithm,
                                                                   Size* bytes) {
  return answer(algorithm, workspace_of(input, filter, output, Pass::kInputGradient), bytes);
}

NULL_GPU_API int null_cudnnConvolutionBackwardData(Handle, void const*, Handle, void const*, Handle,
                                                   void const*, Handle, int, void* workspace,
                                                   Size bytes, void const*, Handle, void*) {
  return run(workspace, bytes);
}

// -- the gradient of the filter

NULL_GPU_API int null_cudnnGetConvolutionBackwardFilterAlgorithm_v7(Handle, Handle input,
                                                                    Handle output, Handle,
                                                                    Handle filter, int wanted,
                                                                    int* count,
                                                                    AlgorithmPerformance* out) {
  return offer(workspace_of(input, filter, output, Pass::kFilterGradient), kNoLimit, wanted, count,
               out);
}

NULL_GPU_API int null_cudnnFindConvolutionBackwardFilterAlgorithmEx(
    Handle, Handle input, void const*, Handle output, void const*, Handle, Handle filter, void*,
    int wanted, int* count, AlgorithmPerformance* out, void*, Size limit) {
  launched(nullptr);
  return offer(workspace_of(input, filter, output, Pass::kFilterGradient), limit, wanted, count,
               out);
}

NULL_GPU_API int null_cudnnGetConvolutionBackwardFilterWorkspaceSize(Handle, Handle input,
                                                                     Handle output, Handle,
                                                                     Handle filter, int algorithm,
                                                                     Size* bytes) {
  return answer(algorithm, workspace_of(input, filter, output, Pass::kFilterGradient), bytes);
}

NULL_GPU_API int null_cudnnConvolutionBackwardFilter(Handle, void const*, Handle, void const*,
                                                     Handle, void const*, Handle, int,
                                                     void* workspace, Size bytes, void const*,
                                                     Handle, void*) {
  return run(workspace, bytes);
}

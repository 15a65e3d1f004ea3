// native/libraries/cudnn.cpp: cuDNN's legacy API: handles, tensors, norms, dropout.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/libraries/cudnn.hpp"

#include <algorithm>
#include <utility>

#include "null_gpu/native/libraries/workspaces.hpp"
#include "null_gpu/native/machine.hpp"

namespace allocbench::null_gpu::cudnn {

Shape contiguous(int type, int rank, int const* sizes) {
  Shape tensor{type, {sizes, sizes + std::clamp(rank, 0, kMostDimensions)}, {}};
  tensor.strides.resize(tensor.sizes.size());
  std::int64_t stride = 1;
  for (Size axis = tensor.sizes.size(); axis-- > 0;) {
    tensor.strides[axis] = stride;
    stride *= tensor.sizes[axis];
  }
  return tensor;
}

namespace {

// Bytes of the generators of random numbers (curandStateXORWOW_t) that dropout uses.
Size states_of_generators() {
  constexpr Size kBytes = 48, kThreads = 1024;
  return static_cast<Size>(Machine::get().settings().multiprocessors) * kThreads * kBytes;
}

}  // namespace

}  // namespace allocbench::null_gpu::cudnn

using namespace allocbench::null_gpu;
using namespace allocbench::null_gpu::cudnn;

NULL_GPU_API Size null_cudnnGetVersion() {
  return static_cast<Size>(Machine::get().settings().cudnn_version);
}

NULL_GPU_API Size null_cudnnGetCudartVersion() {
  return static_cast<Size>(Machine::get().settings().cuda_version);
}

NULL_GPU_API int null_cudnnGetProperty(int type, int* value) {
  int const version = Machine::get().settings().cudnn_version;
  *value = type == 0 ? version / 10000 : type == 1 ? version / 100 % 100 : version % 100;
  return kSuccess;
}

NULL_GPU_TEXTS(cudnnGetErrorString)

NULL_GPU_API void null_cudnnGetLastErrorString(char* text, Size size) {
  if (size != 0) *text = '\0';
}

NULL_GPU_DOES(cudnnCreate, (Handle * handle), *handle = Machine::get().new_handle())
NULL_GPU_DOES(cudnnGetStream, (Handle, Handle* stream), *stream = nullptr)
NULL_GPU_ALIASES(null_cudnnCreate, null_cudnnCreateActivationDescriptor,
                 null_cudnnCreateCTCLossDescriptor, null_cudnnCreateConvolutionDescriptor,
                 null_cudnnCreateDropoutDescriptor, null_cudnnCreateFilterDescriptor,
                 null_cudnnCreatePoolingDescriptor, null_cudnnCreateRNNDataDescriptor,
                 null_cudnnCreateRNNDescriptor, null_cudnnCreateSpatialTransformerDescriptor,
                 null_cudnnCreateTensorDescriptor);
NULL_GPU_GIVES(cudnnDestroyTensorDescriptor, (Handle descriptor),
               Tensors::get().destroy(descriptor))
NULL_GPU_ALIASES(null_cudnnDestroyTensorDescriptor, null_cudnnDestroyFilterDescriptor);

NULL_GPU_API int null_cudnnSetTensorNdDescriptor(Handle descriptor, int type, int rank,
                                                 int const* sizes, int const* strides) {
  Shape tensor = contiguous(type, rank, sizes);
  tensor.strides.assign(strides, strides + tensor.sizes.size());
  return Tensors::get().set(descriptor, std::move(tensor));
}

NULL_GPU_API int null_cudnnGetTensorNdDescriptor(Handle descriptor, int wanted, int* type,
                                                 int* rank, int* sizes, int* strides) {
  Shape const tensor = Tensors::get().of(descriptor);
  *type = tensor.type;
  *rank = static_cast<int>(tensor.sizes.size());
  std::copy_n(tensor.sizes.begin(), std::min(wanted, *rank), sizes);
  std::copy_n(tensor.strides.begin(), std::min(wanted, *rank), strides);
  return kSuccess;
}

NULL_GPU_API int null_cudnnSetFilterNdDescriptor(Handle descriptor, int type, int format, int rank,
                                                 int const* sizes) {
  Shape filter = contiguous(type, rank, sizes);
  filter.format = format;
  return Tensors::get().set(descriptor, std::move(filter));
}

NULL_GPU_API int null_cudnnGetFilterNdDescriptor(Handle descriptor, int wanted, int* type,
                                                 int* format, int* rank, int* sizes) {
  Shape const filter = Tensors::get().of(descriptor);
  *type = filter.type;
  *format = filter.format;
  *rank = static_cast<int>(filter.sizes.size());
  std::copy_n(filter.sizes.begin(), std::min(wanted, *rank), sizes);
  return kSuccess;
}

NULL_GPU_API int null_cudnnDropoutGetStatesSize(Handle, Size* bytes) {
  auto const& assumed = assumption(Rule::kDropoutStates);
  *bytes = asked(Rule::kDropoutStates,
                 assumed.is("generators") ? states_of_generators() : assumed.bytes);
  return kSuccess;
}

NULL_GPU_DOES(cudnnGetBatchNormalizationTrainingExReserveSpaceSize,
              (Handle, int, int, Handle, Handle, Size* bytes), *bytes = 0)

WORKSPACE(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, Rule::kBatchNorm, Size, 1, 8)
WORKSPACE(cudnnGetBatchNormalizationBackwardExWorkspaceSize, Rule::kBatchNorm, Size, 1, 10)
WORKSPACE(cudnnGetCTCLossWorkspaceSize, Rule::kCtcLoss, Size, 1, 8)
WORKSPACE(cudnnGetCTCLossWorkspaceSize_v8, Rule::kCtcLoss, Size, 1, 5)

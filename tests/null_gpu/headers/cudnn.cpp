// Compares the null GPU's declarations of cuDNN with its headers; argument: the null GPU's library.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/libraries/cudnn.hpp"

#include <cudnn.h>

#include <cstddef>
#include <cstring>

#include "core.hpp"
#include "null_gpu/native/api.hpp"

namespace null = allocbench::null_gpu;
using namespace allocbench::null_gpu::cudnn;

#define EQUAL(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs))

EQUAL(null::kCudnnNotSupported, CUDNN_STATUS_NOT_SUPPORTED);
EQUAL(kFloat, CUDNN_DATA_FLOAT);
EQUAL(kDouble, CUDNN_DATA_DOUBLE);
EQUAL(kHalf, CUDNN_DATA_HALF);
EQUAL(kBfloat16, CUDNN_DATA_BFLOAT16);
EQUAL(element_bytes(CUDNN_DATA_FLOAT), 4);
EQUAL(element_bytes(CUDNN_DATA_DOUBLE), 8);
EQUAL(element_bytes(CUDNN_DATA_HALF), 2);
EQUAL(element_bytes(CUDNN_DATA_INT8), 1);
EQUAL(element_bytes(CUDNN_DATA_INT32), 4);
EQUAL(element_bytes(CUDNN_DATA_UINT8), 1);
EQUAL(element_bytes(CUDNN_DATA_BFLOAT16), 2);
EQUAL(element_bytes(CUDNN_DATA_INT64), 8);
EQUAL(element_bytes(CUDNN_DATA_BOOLEAN), 1);
EQUAL(element_bytes(CUDNN_DATA_FP8_E4M3), 1);
EQUAL(element_bytes(CUDNN_DATA_FP8_E5M2), 1);
EQUAL(kLstm, CUDNN_LSTM);
EQUAL(kGru, CUDNN_GRU);
EQUAL(1, CUDNN_BIDIRECTIONAL);
EQUAL(0, CUDNN_RNN_NO_BIAS);
EQUAL(kEngine, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
EQUAL(kTensorCores, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
EQUAL(kTypeHandle, CUDNN_TYPE_HANDLE);
EQUAL(kTypeBoolean, CUDNN_TYPE_BOOLEAN);
EQUAL(kTypeInt64, CUDNN_TYPE_INT64);
EQUAL(kTypeDouble, CUDNN_TYPE_DOUBLE);
EQUAL(kTypeAddress, CUDNN_TYPE_VOID_PTR);
EQUAL(kTypeDescriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR);
EQUAL(kTypeChar, CUDNN_TYPE_CHAR);
EQUAL(kTypeFraction, CUDNN_TYPE_FRACTION);
static_assert(sizeof(cudnnFraction_t) == 16);
EQUAL(kForwardFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
EQUAL(kForwardInput, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
EQUAL(kForwardOutput, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
EQUAL(kDataFilter, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W);
EQUAL(kDataInputGradient, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX);
EQUAL(kDataOutputGradient, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
EQUAL(kFilterGradient, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
EQUAL(kFilterInput, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X);
EQUAL(kFilterOutputGradient, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
EQUAL(kHeuristicGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
EQUAL(kHeuristicResults, CUDNN_ATTR_ENGINEHEUR_RESULTS);
EQUAL(kConfigEngine, CUDNN_ATTR_ENGINECFG_ENGINE);
EQUAL(kConfigWorkspace, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
EQUAL(kConfigShared, CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED);
EQUAL(kPlanConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
EQUAL(kPlanWorkspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
EQUAL(kGraphOperations, CUDNN_ATTR_OPERATIONGRAPH_OPS);
EQUAL(kGraphEngines, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT);
EQUAL(kTensorType, CUDNN_ATTR_TENSOR_DATA_TYPE);
EQUAL(kTensorSizes, CUDNN_ATTR_TENSOR_DIMENSIONS);
EQUAL(kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES);
EQUAL(kPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
EQUAL(kEngineGraph, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
EQUAL(kEngineIndex, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
EQUAL(kEngineNumericalNotes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);

EQUAL(kWithWorkspace, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
EQUAL(kWithWorkspace, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
EQUAL(kWithWorkspace, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
EQUAL(kWithoutWorkspace, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM);
EQUAL(kWithoutWorkspace, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0);
EQUAL(kWithoutWorkspace, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0);
EQUAL(kDeterministic, CUDNN_DETERMINISTIC);
EQUAL(kDefaultMath, CUDNN_DEFAULT_MATH);
EQUAL(kTensorOperations, CUDNN_TENSOR_OP_MATH);

template <class Theirs>
constexpr bool same_layout() {
  return sizeof(AlgorithmPerformance) == sizeof(Theirs) &&
         offsetof(AlgorithmPerformance, status) == offsetof(Theirs, status) &&
         offsetof(AlgorithmPerformance, memory) == offsetof(Theirs, memory) &&
         offsetof(AlgorithmPerformance, determinism) == offsetof(Theirs, determinism) &&
         offsetof(AlgorithmPerformance, math) == offsetof(Theirs, mathType);
}
static_assert(same_layout<cudnnConvolutionFwdAlgoPerf_t>());
static_assert(same_layout<cudnnConvolutionBwdDataAlgoPerf_t>());
static_assert(same_layout<cudnnConvolutionBwdFilterAlgoPerf_t>());

// The bytes of workspace that the three directions of a convolution ask for, on an H100: copies of
// the input and the filter, backward of the output as well.
void check_convolutions() {
  cudnnTensorDescriptor_t input = nullptr, output = nullptr;
  NULL_GPU(cudnnCreateTensorDescriptor)(&input);
  NULL_GPU(cudnnCreateTensorDescriptor)(&output);
  int const sizes[] = {2, 8, 16, 16}, strides[] = {2048, 256, 16, 1};
  NULL_GPU(cudnnSetTensorNdDescriptor)(input, CUDNN_DATA_HALF, 4, sizes, strides);
  NULL_GPU(cudnnSetTensorNdDescriptor)(output, CUDNN_DATA_HALF, 4, sizes, strides);
  cudnnFilterDescriptor_t filter = nullptr;
  NULL_GPU(cudnnCreateFilterDescriptor)(&filter);
  int const weights[] = {8, 8, 3, 3};
  NULL_GPU(cudnnSetFilterNdDescriptor)
  (filter, CUDNN_DATA_HALF, CUDNN_TENSOR_NHWC, 4, weights);
  cudnnDataType_t type{};
  cudnnTensorFormat_t format{};
  int rank = 0, read[4] = {};
  NULL_GPU(cudnnGetFilterNdDescriptor)(filter, 4, &type, &format, &rank, read);
  check("type of a filter", type, CUDNN_DATA_HALF);
  check("format of a filter", format, CUDNN_TENSOR_NHWC);
  check("rank of a filter", rank, 4);
  check("sizes of a filter", std::memcmp(read, weights, sizeof weights), 0);

  long long const map = 2 * 8 * 16 * 16 * 2, forward = map + 8 * 8 * 9 * 2;
  size_t bytes = 0;
  NULL_GPU(cudnnGetConvolutionForwardWorkspaceSize)
  (nullptr, input, filter, nullptr, output, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
   &bytes);
  check("workspace, forward", static_cast<long long>(bytes), forward);
  NULL_GPU(cudnnGetConvolutionBackwardDataWorkspaceSize)
  (nullptr, filter, output, nullptr, input, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, &bytes);
  check("workspace, gradient of the input", static_cast<long long>(bytes), forward + map);
  NULL_GPU(cudnnGetConvolutionBackwardFilterWorkspaceSize)
  (nullptr, input, output, nullptr, filter, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, &bytes);
  check("workspace, gradient of the filter", static_cast<long long>(bytes), forward + map);

  int count = 0;
  cudnnConvolutionFwdAlgoPerf_t found[8];
  NULL_GPU(cudnnGetConvolutionForwardAlgorithm_v7)
  (nullptr, input, filter, nullptr, output, 8, &count, found);
  check("algorithms", count, 2);
  check("workspace of the first", static_cast<long long>(found[0].memory), forward);
  check("workspace of the second", static_cast<long long>(found[1].memory), 0);
  NULL_GPU(cudnnFindConvolutionForwardAlgorithmEx)
  (nullptr, input, nullptr, filter, nullptr, nullptr, output, nullptr, 8, &count, found, nullptr,
   1000);
  check("algorithms with a workspace of 1000 bytes", count, 1);
  cudnnConvolutionBwdDataAlgoPerf_t data[8];
  NULL_GPU(cudnnGetConvolutionBackwardDataAlgorithm_v7)
  (nullptr, filter, output, nullptr, input, 8, &count, data);
  check("workspace of the first, input", static_cast<long long>(data[0].memory), forward + map);
  NULL_GPU(cudnnFindConvolutionBackwardDataAlgorithmEx)
  (nullptr, filter, nullptr, output, nullptr, nullptr, input, nullptr, 1, &count, data, nullptr,
   1 << 20);
  check("the wanted algorithm, input", count, 1);
  cudnnConvolutionBwdFilterAlgoPerf_t gradient[8];
  NULL_GPU(cudnnGetConvolutionBackwardFilterAlgorithm_v7)
  (nullptr, input, output, nullptr, filter, 8, &count, gradient);
  check("workspace of the first, filter", static_cast<long long>(gradient[0].memory),
        forward + map);
  NULL_GPU(cudnnFindConvolutionBackwardFilterAlgorithmEx)
  (nullptr, input, nullptr, output, nullptr, nullptr, filter, nullptr, 1, &count, gradient, nullptr,
   1 << 20);
  check("the wanted algorithm, filter", count, 1);

  float const one = 1;
  check("forward",
        NULL_GPU(cudnnConvolutionForward)(nullptr, &one, input, nullptr, filter, nullptr, nullptr,
                                          CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, nullptr, 0,
                                          &one, output, nullptr),
        CUDNN_STATUS_SUCCESS);
  check("forward with an activation",
        NULL_GPU(cudnnConvolutionBiasActivationForward)(
            nullptr, &one, input, nullptr, filter, nullptr, nullptr,
            CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, nullptr, 0, &one, output, nullptr, input,
            nullptr, nullptr, output, nullptr),
        CUDNN_STATUS_SUCCESS);
  check("gradient of the input",
        NULL_GPU(cudnnConvolutionBackwardData)(nullptr, &one, filter, nullptr, output, nullptr,
                                               nullptr, CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, nullptr,
                                               0, &one, input, nullptr),
        CUDNN_STATUS_SUCCESS);
  check("gradient of the filter",
        NULL_GPU(cudnnConvolutionBackwardFilter)(nullptr, &one, input, nullptr, output, nullptr,
                                                 nullptr, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0,
                                                 nullptr, 0, &one, filter, nullptr),
        CUDNN_STATUS_SUCCESS);
}

int main(int, char** arguments) {
  if (!load(
          arguments[1],
          "cudnn_version=92003\nbatch_norm_workspace=11\nctc_loss_workspace=12\ndropout_states=13\n"
          "rnn_workspace=gates\nrnn_reserve=gates\nconvolution_workspace=copies\n"))
    return 2;
  check_convolutions();
  check("version", static_cast<long long>(NULL_GPU(cudnnGetVersion)()), 92003);
  int part = 0;
  NULL_GPU(cudnnGetProperty)(MINOR_VERSION, &part);
  check("minor version", part, 20);

  cudnnTensorDescriptor_t tensor = nullptr;
  NULL_GPU(cudnnCreateTensorDescriptor)(&tensor);
  int const sizes[] = {2, 3, 5}, strides[] = {15, 5, 1};
  NULL_GPU(cudnnSetTensorNdDescriptor)(tensor, CUDNN_DATA_HALF, 3, sizes, strides);
  cudnnDataType_t type{};
  int rank = 0, read[3] = {}, steps[3] = {};
  NULL_GPU(cudnnGetTensorNdDescriptor)(tensor, 3, &type, &rank, read, steps);
  check("type of a tensor", type, CUDNN_DATA_HALF);
  check("rank of a tensor", rank, 3);
  check("sizes of a tensor", std::memcmp(read, sizes, sizeof sizes), 0);
  check("strides of a tensor", std::memcmp(steps, strides, sizeof strides), 0);

  size_t bytes = 0;
  auto const spatial = CUDNN_BATCHNORM_SPATIAL;
  auto const plain = CUDNN_BATCHNORM_OPS_BN;
  NULL_GPU(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize)
  (nullptr, spatial, plain, tensor, nullptr, tensor, tensor, nullptr, &bytes);
  check("workspace of batch norm", static_cast<long long>(bytes), 11);
  bytes = 0;
  NULL_GPU(cudnnGetBatchNormalizationBackwardExWorkspaceSize)
  (nullptr, spatial, plain, tensor, nullptr, tensor, nullptr, tensor, tensor, nullptr, &bytes);
  check("workspace of batch norm, backward", static_cast<long long>(bytes), 11);
  NULL_GPU(cudnnGetBatchNormalizationTrainingExReserveSpaceSize)
  (nullptr, spatial, plain, nullptr, tensor, &bytes);
  check("reserve of batch norm", static_cast<long long>(bytes), 0);
  NULL_GPU(cudnnGetCTCLossWorkspaceSize_v8)
  (nullptr, CUDNN_CTC_LOSS_ALGO_DETERMINISTIC, nullptr, tensor, tensor, &bytes);
  check("workspace of CTC loss", static_cast<long long>(bytes), 12);
  NULL_GPU(cudnnDropoutGetStatesSize)(nullptr, &bytes);
  check("states of dropout", static_cast<long long>(bytes), 13);

  cudnnRNNDescriptor_t network = nullptr;
  NULL_GPU(cudnnCreateRNNDescriptor)(&network);
  NULL_GPU(cudnnSetRNNDescriptor_v8)
  (network, CUDNN_RNN_ALGO_STANDARD, CUDNN_LSTM, CUDNN_RNN_DOUBLE_BIAS, CUDNN_BIDIRECTIONAL,
   CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DEFAULT_MATH, 7, 16, 16, 2,
   nullptr, 0);
  cudnnRNNDataDescriptor_t data = nullptr;
  NULL_GPU(cudnnCreateRNNDataDescriptor)(&data);
  int const lengths[] = {5, 5, 5};
  NULL_GPU(cudnnSetRNNDataDescriptor)
  (data, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, 5, 3, 7, lengths, nullptr);
  size_t work = 0, reserve = 0;
  NULL_GPU(cudnnGetRNNTempSpaceSizes)
  (nullptr, network, CUDNN_FWD_MODE_TRAINING, data, &work, &reserve);
  int const state = 5 * 3 * 16 * 2 * 4;
  check("workspace of a network", static_cast<long long>(work), 2 * 4 * state + 4 * (8 << 20));
  check("reserve of a network", static_cast<long long>(reserve), (5 * 2 + 1) * state + 256);
  NULL_GPU(cudnnGetRNNWeightSpaceSize)(nullptr, network, &bytes);
  int const first = 4 * 16 * (7 + 16 + 2), second = 4 * 16 * (32 + 16 + 2);
  check("weights of a network", static_cast<long long>(bytes), 4 * 2 * (first + second));
  return wrong == 0 ? 0 : 1;
}

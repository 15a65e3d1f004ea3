// native/libraries/cudnn.hpp: what the parts of cuDNN share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu::cudnn {

// cudnnDataType_t, and the bytes of an element of each.
enum DataType : int { kFloat = 0, kDouble = 1, kHalf = 2, kBfloat16 = 9 };
constexpr Size element_bytes(int type) {
  constexpr Size kBytes[] = {4, 8, 2, 1, 4, 4, 1, 4, 4, 2, 8, 1, 1, 1};
  return type >= 0 && type < 14 ? kBytes[type] : 4;
}

enum NetworkMode : int { kLstm = 2, kGru = 3 };  // cudnnRNNMode_t

inline constexpr int kMostDimensions = 8;

// A tensor or a filter: batch or output channels, channels, and the other dimensions.
struct Shape {
  int type = 0;  // DataType
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  int format = 0;  // of a filter: cudnnTensorFormat_t

  [[nodiscard]] bool valid() const { return sizes.size() > 2 && strides.size() == sizes.size(); }
  [[nodiscard]] bool channels_last() const { return strides[1] == 1 && sizes[1] > 1; }
};

// A tensor or filter whose last dimension is contiguous. Dimensions beyond kMostDimensions are left
// out.
Shape contiguous(int type, int rank, int const* sizes);

// What descriptors have been set to.
template <class Value>
class Descriptors : public Only<Descriptors<Value>> {
 public:
  int set(Handle descriptor, Value value) {
    std::lock_guard const lock(mutex_);
    values_[descriptor] = std::move(value);
    return kSuccess;
  }
  Value of(Handle descriptor) {
    std::lock_guard const lock(mutex_);
    auto const entry = values_.find(descriptor);
    return entry == values_.end() ? Value{} : entry->second;
  }
  int destroy(Handle descriptor) {
    std::lock_guard const lock(mutex_);
    values_.erase(descriptor);
    return kSuccess;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<Handle, Value> values_;
};
using Tensors = Descriptors<Shape>;  // and filters

enum class Pass { kForward, kInputGradient, kFilterGradient };

// The tensors of a convolution or of one of its gradients.
struct Convolution {
  Shape input;
  Shape filter;
  Shape output;
  Pass pass = Pass::kForward;
};

// Bytes of its workspace by the rule of convolutions in workspaces.json.
Size workspace_of(Convolution const& convolution);

// The values of cudnnBackendAttributeName_t that the null GPU uses.
inline constexpr int kHeuristicGraph = 201, kHeuristicResults = 202;
inline constexpr int kConfigEngine = 300, kConfigWorkspace = 303, kConfigShared = 304;
inline constexpr int kPlanConfig = 401, kPlanWorkspace = 402;
inline constexpr int kForwardFilter = 703, kForwardInput = 704, kForwardOutput = 705;
inline constexpr int kDataFilter = 709, kDataInputGradient = 710, kDataOutputGradient = 711;
inline constexpr int kFilterGradient = 715, kFilterInput = 716, kFilterOutputGradient = 717;
inline constexpr int kGraphOperations = 801, kGraphEngines = 802;
inline constexpr int kTensorType = 901, kTensorSizes = 902, kTensorStrides = 903;
inline constexpr int kPackWorkspace = 1003;
inline constexpr int kEngineGraph = 1300, kEngineIndex = 1301, kEngineNumericalNotes = 1303;
inline constexpr int kMatrixProductLeft = 1520, kReductionInput = 1610, kReductionOutput = 1611;
inline constexpr int kAttentionQuery = 2800, kAttentionKey = 2801;

// cudnnBackendAttributeType_t
inline constexpr int kTypeHandle = 0, kTypeBoolean = 2, kTypeInt64 = 3, kTypeDouble = 5;
inline constexpr int kTypeAddress = 6, kTypeDescriptor = 15, kTypeChar = 24, kTypeFraction = 26;

inline constexpr int kEngine = 2;       // cudnnBackendDescriptorType_t
inline constexpr int kTensorCores = 0;  // cudnnBackendNumericalNote_t

// The content of a descriptor. It is shared, because other descriptors keep it after the descriptor
// is destroyed.
struct Content;
struct Attribute {
  int type = 0;
  std::int64_t count = 0;
  std::vector<char> bytes;                         // the values, unless they are descriptors
  std::vector<std::shared_ptr<Content>> contents;  // the values, if they are descriptors
};
struct Content {
  int type = 0;
  std::map<int, Attribute> attributes;

  // The first descriptor in an attribute; null if the attribute is not set.
  [[nodiscard]] Content const* at(int name) const {
    auto const entry = attributes.find(name);
    if (entry == attributes.end() || entry->second.contents.empty()) return nullptr;
    return entry->second.contents.front().get();
  }
  // The first number in an attribute; `other` if the attribute is not set.
  template <class Number>
  [[nodiscard]] Number number(int name, Number other) const {
    auto const entry = attributes.find(name);
    if (entry != attributes.end() && entry->second.bytes.size() >= sizeof other)
      std::memcpy(&other, entry->second.bytes.data(), sizeof other);
    return other;
  }
};

// The type, sizes and strides of a tensor's descriptor; empty if there is no descriptor.
Shape shape_of(Content const* tensor);

// The operations of a graph; none if there are no operations.
std::vector<std::shared_ptr<Content>> const& operations_of(Content const& graph);

// Whether one of the operations of a graph is a convolution, forward or backward.
bool has_convolution(Content const& graph);

// Bytes of workspace of a convolution by its rule in workspaces.json; 0 for a graph that is not one
// convolution.
Size convolution_workspace(Content const& graph);

// Bytes of workspace of attention by the formula "attention" of workspaces.json; 0 for a graph that
// is not attention.
Size attention_workspace(Content const& graph);

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

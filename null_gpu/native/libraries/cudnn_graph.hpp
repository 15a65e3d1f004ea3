// native/libraries/cudnn_graph.hpp: descriptors of cuDNN's backend API.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "null_gpu/native/api.hpp"
#include "null_gpu/native/libraries/cudnn_convolution.hpp"

namespace allocbench::null_gpu::cudnn {

// The values of cudnnBackendAttributeName_t that the null GPU uses.
enum Name : int {
  kForwardFilter = 703,
  kForwardInput = 704,
  kForwardOutput = 705,
  kDataFilter = 709,
  kDataInputGradient = 710,
  kDataOutputGradient = 711,
  kFilterGradient = 715,
  kFilterInput = 716,
  kFilterOutputGradient = 717,
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kConfigEngine = 300,
  kConfigWorkspace = 303,
  kConfigShared = 304,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kGraphOperations = 801,
  kGraphEngines = 802,
  kTensorType = 901,
  kTensorSizes = 902,
  kTensorStrides = 903,
  kPackWorkspace = 1003,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
  kEngineNumericalNotes = 1303,
  kMatrixProductLeft = 1520,
  kReductionInput = 1610,
  kReductionOutput = 1611,
  kAttentionQuery = 2800,
  kAttentionKey = 2801,
};

enum AttributeType : int {  // cudnnBackendAttributeType_t
  kTypeHandle = 0,
  kTypeBoolean = 2,
  kTypeInt64 = 3,
  kTypeDouble = 5,
  kTypeAddress = 6,
  kTypeDescriptor = 15,
  kTypeChar = 24,
  kTypeFraction = 26,
};

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

}  // namespace allocbench::null_gpu::cudnn

// null_gpu/libraries/cudnn_graph.hpp: descriptors of cuDNN's backend interface.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "null_gpu/api.hpp"

namespace allocbench::null_gpu::cudnn {

// cudnnBackendAttributeName_t, as far as the null GPU looks at them.
enum Name : int {
  kForwardFilter = 703,
  kForwardInput = 704,
  kForwardOutput = 705,
  kDataFilter = 709,
  kDataInputGradient = 710,
  kDataOutputGradient = 711,
  kFilterGradient = 714,
  kFilterInput = 715,
  kFilterOutputGradient = 716,
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
  kEngineGraph = 1300,
  kEngineIndex = 1301,
  kEngineNumericalNotes = 1303,
};

// What a descriptor says. Others keep it when the descriptor itself is destroyed.
struct Content;
struct Attribute {
  int type = 0;
  std::int64_t count = 0;
  std::vector<char> bytes;                         // of all types but descriptors
  std::vector<std::shared_ptr<Content>> contents;  // of descriptors
};
struct Content {
  int type = 0;
  std::map<int, Attribute> attributes;

  // The descriptor that an attribute names; nullptr where nobody has set it.
  [[nodiscard]] Content const* at(int name) const {
    auto const found = attributes.find(name);
    if (found == attributes.end() || found->second.contents.empty()) return nullptr;
    return found->second.contents.front().get();
  }
};

// Bytes of workspace that a convolution needs, in addition to its tensors, when the engine that the
// heuristics rank first runs it; 0 for a graph that is not one convolution. See
// docs/without-a-gpu.md.
Size convolution_workspace(Content const& graph);

}  // namespace allocbench::null_gpu::cudnn

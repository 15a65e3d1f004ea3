// native/libraries/cudnn_backend.cpp: cuDNN's backend API: descriptors with attributes.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "null_gpu/native/libraries/cudnn.hpp"
#include "null_gpu/native/libraries/workspaces.hpp"
#include "null_gpu/native/values.hpp"

namespace allocbench::null_gpu::cudnn {

namespace {

std::vector<std::int64_t> numbers(Content const& tensor, int name) {
  auto const entry = tensor.attributes.find(name);
  if (entry == tensor.attributes.end()) return {};
  auto const& bytes = entry->second.bytes;
  std::vector<std::int64_t> values(bytes.size() / sizeof(std::int64_t));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(std::int64_t));
  return values;
}

}  // namespace

Shape shape_of(Content const* tensor) {
  if (tensor == nullptr) return {};
  return {tensor->number(kTensorType, 0), numbers(*tensor, kTensorSizes),
          numbers(*tensor, kTensorStrides)};
}

std::vector<std::shared_ptr<Content>> const& operations_of(Content const& graph) {
  static std::vector<std::shared_ptr<Content>> const none;
  auto const found = graph.attributes.find(kGraphOperations);
  return found == graph.attributes.end() ? none : found->second.contents;
}

}  // namespace allocbench::null_gpu::cudnn

using namespace allocbench::null_gpu;
using namespace allocbench::null_gpu::cudnn;

namespace {

// The two engines: one uses a workspace; PyTorch tries the other one, which needs no workspace, if
// there is no memory for it. On an H100, cuDNN offers dozens of engines, and each of 27 calls found
// one for which the memory was enough (tests/data/h100/layers.json).
constexpr std::int64_t kEngineWithWorkspace = 0;
constexpr std::int64_t kEngineWithoutWorkspace = 1;

Size bytes_of(int type) {
  switch (type) {
    case kTypeHandle:
    case kTypeInt64:
    case kTypeDouble:
    case kTypeAddress:
    case kTypeDescriptor: return 8;
    case kTypeBoolean:
    case kTypeChar: return 1;
    case kTypeFraction: return 16;
    default: return 4;  // enumerations, float, int
  }
}

struct Descriptor {
  std::shared_ptr<Content> content;
};

Content& of(void* descriptor) { return *static_cast<Descriptor*>(descriptor)->content; }

void put(Content& content, int name, std::int64_t value) {
  Attribute attribute{kTypeInt64, 1, std::vector<char>(sizeof value), {}};
  std::memcpy(attribute.bytes.data(), &value, sizeof value);
  content.attributes[name] = std::move(attribute);
}

std::shared_ptr<Content> make_engine(Content const& heuristic, std::int64_t index) {
  auto engine = std::make_shared<Content>();
  engine->type = kEngine;
  auto const graph = heuristic.attributes.find(kHeuristicGraph);
  if (graph != heuristic.attributes.end()) engine->attributes[kEngineGraph] = graph->second;
  put(*engine, kEngineIndex, index);
  return engine;
}

Rule rule_of(Content const* graph) {
  return graph != nullptr && has_convolution(*graph) ? Rule::kConvolution : Rule::kGraph;
}

Size workspace_of_graph(Content const* graph) {
  auto const& assumed = assumption(rule_of(graph));
  if (assumed.is_bytes) return assumed.bytes;
  if (graph == nullptr) return 0;
  return has_convolution(*graph) ? convolution_workspace(*graph) : attention_workspace(*graph);
}

// The engines that the heuristics offer for a graph, best first.
std::vector<std::int64_t> offered_engines(Content const& heuristic) {
  if (workspace_of_graph(heuristic.at(kHeuristicGraph)) == 0) return {kEngineWithoutWorkspace};
  return {kEngineWithWorkspace, kEngineWithoutWorkspace};
}

std::int64_t index_of(Content const* engine) {
  return engine == nullptr ? kEngineWithoutWorkspace
                           : engine->number(kEngineIndex, kEngineWithoutWorkspace);
}

Content const* engine_of(Content const& plan) {
  Content const* const config = plan.at(kPlanConfig);
  return config == nullptr ? nullptr : config->at(kConfigEngine);
}

Size workspace_of_plan(Content const& plan) {
  Content const* const engine = engine_of(plan);
  if (index_of(engine) != kEngineWithWorkspace) return 0;
  return workspace_of_graph(engine->at(kEngineGraph));
}

void copy_values(Attribute const& attribute, std::int64_t wanted, void* out) {
  auto const count = static_cast<Size>(std::min(wanted, attribute.count));
  if (attribute.type != kTypeDescriptor) {
    std::memcpy(out, attribute.bytes.data(), count * bytes_of(attribute.type));
    return;
  }
  for (Size index = 0; index < count; ++index)
    if (auto* const descriptor = static_cast<Descriptor**>(out)[index])
      descriptor->content = attribute.contents[index];
}

// The count of an attribute that the program has not set; 0 if it is unknown. Writes the value to
// `out` if `wanted` is not 0.
std::int64_t compute(Content const& content, int name, std::int64_t wanted, void* out) {
  auto number = [=](std::int64_t value) {
    if (wanted > 0 && out != nullptr) *static_cast<std::int64_t*>(out) = value;
    return std::int64_t{1};
  };
  switch (name) {
    case kHeuristicResults: {
      auto const engines = offered_engines(content);
      auto const count = static_cast<std::int64_t>(engines.size());
      for (std::int64_t index = 0; out != nullptr && index < std::min(wanted, count); ++index) {
        Content& config = of(static_cast<void**>(out)[index]);
        config.attributes[kConfigEngine] = {
            kTypeDescriptor, 1, {}, {make_engine(content, engines[static_cast<Size>(index)])}};
      }
      return wanted > 0 ? std::min(wanted, count) : count;
    }
    case kPlanWorkspace: return number(static_cast<std::int64_t>(workspace_of_plan(content)));
    case kConfigWorkspace: return number(0);
    case kGraphEngines: return number(1);
    case kEngineNumericalNotes:
      if (index_of(&content) != kEngineWithWorkspace) return 0;
      if (wanted > 0 && out != nullptr) *static_cast<int*>(out) = kTensorCores;
      return 1;
    case kConfigShared:
      if (wanted > 0 && out != nullptr) *static_cast<int*>(out) = 0;
      return 1;
    default: return 0;
  }
}

}  // namespace

NULL_GPU_API int null_cudnnBackendCreateDescriptor(int type, void** out) {
  auto content = std::make_shared<Content>();
  content->type = type;
  *out = new Descriptor{std::move(content)};
  return kSuccess;
}

NULL_GPU_DOES(cudnnBackendDestroyDescriptor, (void* descriptor),
              delete static_cast<Descriptor*>(descriptor))

NULL_GPU_API int null_cudnnBackendInitialize(void*) { return kSuccess; }
NULL_GPU_API int null_cudnnBackendFinalize(void*) { return kSuccess; }

NULL_GPU_API int null_cudnnBackendExecute(Handle, void* plan, void* pack) {
  Content const* const engine = engine_of(of(plan));
  Content const* const graph = engine == nullptr ? nullptr : engine->at(kEngineGraph);
  Size const bytes = workspace_of_plan(of(plan));
  used(rule_of(graph), of(pack).number<void*>(kPackWorkspace, nullptr), bytes);
  if (bytes == 0 && workspace_of_graph(graph) > 0) forgone();
  launched(nullptr);
  return kSuccess;
}

NULL_GPU_API int null_cudnnBackendSetAttribute(void* descriptor, int name, int type,
                                               std::int64_t count, void const* values) {
  Attribute attribute{type, count, {}, {}};
  if (type == kTypeDescriptor) {
    auto* const* const others = static_cast<Descriptor* const*>(values);
    for (std::int64_t index = 0; index < count; ++index)
      attribute.contents.push_back(others[index] == nullptr ? nullptr : others[index]->content);
  } else if (values != nullptr) {
    auto const* const bytes = static_cast<char const*>(values);
    attribute.bytes.assign(bytes, bytes + static_cast<Size>(count) * bytes_of(type));
  }
  of(descriptor).attributes[name] = std::move(attribute);
  return kSuccess;
}

NULL_GPU_API int null_cudnnBackendGetAttribute(void* descriptor, int name, int, std::int64_t wanted,
                                               std::int64_t* count, void* out) {
  Content& content = of(descriptor);
  std::int64_t available = 0;
  auto const attribute = content.attributes.find(name);
  if (attribute != content.attributes.end()) {
    available = attribute->second.count;
    if (out != nullptr) copy_values(attribute->second, wanted, out);
  } else {
    available = compute(content, name, wanted, out);
  }
  if (count != nullptr) *count = available;
  return kSuccess;
}

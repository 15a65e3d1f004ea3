// null_gpu/libraries/cudnn_backend.cpp: cuDNN's backend interface: a descriptor is its attributes.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "null_gpu/kernels.hpp"
#include "null_gpu/machine.hpp"

using namespace allocbench::null_gpu;

namespace {

enum Type : int {  // cudnnBackendAttributeType_t
  kBoolean = 2,
  kInt64 = 3,
  kDescriptor = 15,
  kChar = 24,
  kFraction = 26,
};

enum Name : int {  // cudnnBackendAttributeName_t
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kConfigEngine = 300,
  kConfigWorkspace = 303,
  kConfigShared = 304,
  kPlanWorkspace = 402,
  kGraphEngines = 802,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
};

constexpr int kEngine = 3;  // cudnnBackendDescriptorType_t

Size bytes_of(int type) {
  switch (type) {
    case 0:
    case kInt64:
    case 5:
    case 6:
    case kDescriptor:
      return 8;  // handle, double, pointer
    case kBoolean:
    case kChar:
      return 1;
    case kFraction:
      return 16;
    default:
      return 4;  // enumerations, float, int
  }
}

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
};
struct Descriptor {
  std::shared_ptr<Content> content;
};

Content& of(void* descriptor) { return *static_cast<Descriptor*>(descriptor)->content; }

void put(Content& content, int name, std::int64_t value) {
  Attribute attribute{kInt64, 1, std::vector<char>(sizeof value), {}};
  std::memcpy(attribute.bytes.data(), &value, sizeof value);
  content.attributes[name] = std::move(attribute);
}

// The only engine there is, for any graph.
std::shared_ptr<Content> engine(Content const& heuristic) {
  auto made = std::make_shared<Content>();
  made->type = kEngine;
  auto const graph = heuristic.attributes.find(kHeuristicGraph);
  if (graph != heuristic.attributes.end()) made->attributes[kEngineGraph] = graph->second;
  put(*made, kEngineIndex, 0);
  return made;
}

void give(Attribute const& attribute, std::int64_t wanted, void* out) {
  auto const count = static_cast<Size>(std::min(wanted, attribute.count));
  if (attribute.type != kDescriptor) {
    std::memcpy(out, attribute.bytes.data(), count * bytes_of(attribute.type));
    return;
  }
  for (Size one = 0; one < count; ++one) {
    if (auto* const to = static_cast<Descriptor**>(out)[one]) to->content = attribute.contents[one];
  }
}

// What nobody has set.
bool answer(Content const& content, int name, void* out) {
  auto number = [out](std::int64_t value) {
    if (out != nullptr) *static_cast<std::int64_t*>(out) = value;
    return true;
  };
  switch (name) {
    case kHeuristicResults:
      if (out != nullptr) {
        Content& config = of(*static_cast<void**>(out));
        config.attributes[kConfigEngine] = {kDescriptor, 1, {}, {engine(content)}};
      }
      return true;
    case kPlanWorkspace:
      return number(static_cast<std::int64_t>(Machine::get().settings().convolution_workspace));
    case kConfigWorkspace:
      return number(0);
    case kGraphEngines:
      return number(1);
    case kConfigShared:
      if (out != nullptr) *static_cast<int*>(out) = 0;
      return true;
    default:
      return false;
  }
}

}  // namespace

NULL_GPU_API int null_cudnnBackendCreateDescriptor(int type, void** out) {
  auto content = std::make_shared<Content>();
  content->type = type;
  *out = new Descriptor{std::move(content)};
  return kSuccess;
}

NULL_GPU_API int null_cudnnBackendDestroyDescriptor(void* descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return kSuccess;
}

NULL_GPU_API int null_cudnnBackendInitialize(void*) { return kSuccess; }
NULL_GPU_API int null_cudnnBackendFinalize(void*) { return kSuccess; }

NULL_GPU_API int null_cudnnBackendExecute(Handle, void*, void*) {
  launched(nullptr);
  return kSuccess;
}

NULL_GPU_API int null_cudnnBackendSetAttribute(void* descriptor, int name, int type,
                                               std::int64_t count, void const* values) {
  Attribute attribute{type, count, {}, {}};
  if (type == kDescriptor) {
    auto* const* const others = static_cast<Descriptor* const*>(values);
    for (std::int64_t one = 0; one < count; ++one) {
      attribute.contents.push_back(others[one] == nullptr ? nullptr : others[one]->content);
    }
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
  std::int64_t found = 0;
  auto const attribute = content.attributes.find(name);
  if (attribute != content.attributes.end()) {
    found = attribute->second.count;
    if (out != nullptr) give(attribute->second, wanted, out);
  } else if (answer(content, name, wanted > 0 ? out : nullptr)) {
    found = 1;
  }
  if (count != nullptr) *count = found;
  return kSuccess;
}

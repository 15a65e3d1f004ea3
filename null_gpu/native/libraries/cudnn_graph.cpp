// native/libraries/cudnn_graph.cpp: descriptors of cuDNN's backend API.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/libraries/cudnn_graph.hpp"

#include <cstring>

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
  Shape shape;
  auto const type = tensor->attributes.find(kTensorType);
  if (type != tensor->attributes.end() && type->second.bytes.size() >= sizeof(int)) {
    std::memcpy(&shape.type, type->second.bytes.data(), sizeof(int));
  }
  shape.sizes = numbers(*tensor, kTensorSizes);
  shape.strides = numbers(*tensor, kTensorStrides);
  return shape;
}

std::vector<std::shared_ptr<Content>> const& operations_of(Content const& graph) {
  static std::vector<std::shared_ptr<Content>> const none;
  auto const found = graph.attributes.find(kGraphOperations);
  return found == graph.attributes.end() ? none : found->second.contents;
}

}  // namespace allocbench::null_gpu::cudnn

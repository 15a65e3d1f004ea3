// null_gpu/libraries/cudnn_convolution.cpp: a model of the workspace of convolutions.
// SPDX-License-Identifier: Apache-2.0
//
// Tensor Cores compute convolutions of tensors with contiguous channels (NHWC). Tensors in the
// other layout (NCHW) are transposed before and after: NVIDIA, "Convolutional Layers User's Guide",
// section "Tensor Layouts". In the model, the workspace holds these copies, with channels padded to
// 16 bytes, the alignment that the guide requires. A forward convolution needs no copy of its
// output, because it writes the NCHW layout directly. Grouped convolutions need no workspace. In
// the formula "spatial", neither do filters of one pixel: their convolution is a product of
// matrices, and each layout of the tensors is a layout of the matrices.
#include "null_gpu/libraries/cudnn_convolution.hpp"

#include <algorithm>
#include <cstring>

#include "null_gpu/libraries/cudnn.hpp"
#include "null_gpu/libraries/cudnn_graph.hpp"
#include "null_gpu/libraries/workspaces.hpp"
#include "null_gpu/machine.hpp"

namespace allocbench::null_gpu::cudnn {

namespace {

constexpr Size kAlignment = 16;  // bytes
constexpr int kVolta = 70;       // the first with Tensor Cores: for half precision
constexpr int kAmpere = 80;      // the first whose Tensor Cores accept floats, as TF32

std::vector<std::int64_t> numbers(Content const& tensor, int name) {
  auto const entry = tensor.attributes.find(name);
  if (entry == tensor.attributes.end()) return {};
  auto const& bytes = entry->second.bytes;
  std::vector<std::int64_t> values(bytes.size() / sizeof(std::int64_t));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(std::int64_t));
  return values;
}

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

Convolution convolution_of(Content const& operation) {
  if (operation.at(kForwardInput) != nullptr) {
    return {shape_of(operation.at(kForwardInput)), shape_of(operation.at(kForwardFilter)),
            shape_of(operation.at(kForwardOutput)), true};
  }
  if (operation.at(kDataFilter) != nullptr) {
    return {shape_of(operation.at(kDataInputGradient)), shape_of(operation.at(kDataFilter)),
            shape_of(operation.at(kDataOutputGradient)), false};
  }
  return {shape_of(operation.at(kFilterInput)), shape_of(operation.at(kFilterGradient)),
          shape_of(operation.at(kFilterOutputGradient)), false};
}

bool of_one_pixel(Shape const& filter) {
  return std::all_of(filter.sizes.begin() + 2, filter.sizes.end(),
                     [](std::int64_t size) { return size == 1; });
}

bool on_tensor_cores(int type) {
  int const capability = Machine::get().settings().compute_capability;
  if (type == kFloat) return capability >= kAmpere;
  return (type == kHalf || type == kBfloat16) && capability >= kVolta;
}

// Bytes of a transposed copy of a tensor.
Size copy_bytes(Shape const& shape) {
  Size const channels = static_cast<Size>(shape.sizes[1]) * element_bytes(shape.type);
  Size bytes = (channels + kAlignment - 1) / kAlignment * kAlignment;
  for (Size axis = 0; axis < shape.sizes.size(); ++axis) {
    if (axis != 1) bytes *= static_cast<Size>(shape.sizes[axis]);
  }
  return bytes;
}

// Bytes of the transposed copies that a convolution needs.
Size copies(Convolution const& convolution) {
  auto const& [input, filter, output, forward] = convolution;
  bool const grouped = input.sizes[1] != filter.sizes[1];
  if (grouped || input.channels_last() || !on_tensor_cores(input.type)) return 0;
  Size const bytes = copy_bytes(input) + copy_bytes(filter);
  return forward ? bytes : bytes + copy_bytes(output);
}

}  // namespace

Size workspace_of(Convolution const& convolution) {
  auto const& assumed = assumption(Rule::kConvolution);
  if (assumed.is_bytes) return assumed.bytes;
  auto const& [input, filter, output, forward] = convolution;
  if (!input.valid() || !filter.valid() || !output.valid()) return 0;
  if (assumed.is("spatial") && of_one_pixel(filter)) return 0;
  return copies(convolution);
}

bool has_convolution(Content const& graph) {
  auto const operations = graph.attributes.find(kGraphOperations);
  if (operations == graph.attributes.end()) return false;
  return std::ranges::any_of(operations->second.contents, [](auto const& operation) {
    return operation != nullptr &&
           (operation->at(kForwardFilter) != nullptr || operation->at(kDataFilter) != nullptr ||
            operation->at(kFilterGradient) != nullptr);
  });
}

Size convolution_workspace(Content const& graph) {
  auto const operations = graph.attributes.find(kGraphOperations);
  if (operations == graph.attributes.end() || operations->second.contents.size() != 1) return 0;
  return workspace_of(convolution_of(*operations->second.contents.front()));
}

}  // namespace allocbench::null_gpu::cudnn

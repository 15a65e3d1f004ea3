// null_gpu/libraries/cudnn_convolution.cpp: a model of the workspace of convolutions.
// SPDX-License-Identifier: Apache-2.0
//
// Tensor Cores compute convolutions of tensors with contiguous channels (NHWC). Tensors in the
// other layout (NCHW) are transposed before and after: NVIDIA, "Convolutional Layers User's Guide",
// section "Tensor Layouts". In the model, the workspace holds these copies, with channels padded to
// 16 bytes, the alignment that the guide requires. Grouped convolutions need no workspace. In the
// formulas "spatial" and "transposed", neither do filters of one pixel: their convolution is a
// product of matrices, and each layout of the tensors is a layout of the matrices. In "copies" and
// "spatial", a forward convolution writes the NCHW layout directly. On an H100 it writes a copy of
// its output first, and every workspace has 16 bytes more: "transposed".
#include "null_gpu/libraries/cudnn_convolution.hpp"

#include <algorithm>

#include "null_gpu/libraries/cudnn.hpp"
#include "null_gpu/libraries/cudnn_graph.hpp"
#include "null_gpu/libraries/workspaces.hpp"
#include "null_gpu/machine.hpp"

namespace allocbench::null_gpu::cudnn {

namespace {

constexpr Size kAlignment = 16;     // bytes
constexpr Size kBesideCopies = 16;  // bytes, measured on an H100 with cuDNN 9.19
constexpr int kVolta = 70;          // the first with Tensor Cores: for half precision
constexpr int kAmpere = 80;         // the first whose Tensor Cores accept floats, as TF32

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

bool needs_copies(Convolution const& convolution) {
  auto const& input = convolution.input;
  bool const grouped = input.sizes[1] != convolution.filter.sizes[1];
  return !grouped && !input.channels_last() && on_tensor_cores(input.type);
}

}  // namespace

Size workspace_of(Convolution const& convolution) {
  auto const& assumed = assumption(Rule::kConvolution);
  if (assumed.is_bytes) return assumed.bytes;
  auto const& [input, filter, output, forward] = convolution;
  if (!input.valid() || !filter.valid() || !output.valid()) return 0;
  if (!assumed.is("copies") && of_one_pixel(filter)) return 0;
  if (!needs_copies(convolution)) return 0;
  Size const read = copy_bytes(input) + copy_bytes(filter);
  if (assumed.is("transposed")) return read + copy_bytes(output) + kBesideCopies;
  return forward ? read : read + copy_bytes(output);
}

bool has_convolution(Content const& graph) {
  return std::ranges::any_of(operations_of(graph), [](auto const& operation) {
    return operation != nullptr &&
           (operation->at(kForwardFilter) != nullptr || operation->at(kDataFilter) != nullptr ||
            operation->at(kFilterGradient) != nullptr);
  });
}

Size convolution_workspace(Content const& graph) {
  auto const& operations = operations_of(graph);
  return operations.size() == 1 ? workspace_of(convolution_of(*operations.front())) : 0;
}

}  // namespace allocbench::null_gpu::cudnn

// null_gpu/libraries/cudnn_convolution.cpp: the workspace of convolutions, a model.
//
// Tensor Cores compute convolutions of tensors whose channels lie side by side (NHWC). Tensors in
// the other layout (NCHW) are transposed before and after: NVIDIA, "Convolutional Layers User's
// Guide", section "Tensor Layouts". The model is that these copies are the workspace, with channels
// padded to 16 bytes, the alignment that the same guide asks for. A forward convolution writes its
// output in the other layout itself. Grouped convolutions take nothing.
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "null_gpu/libraries/cudnn.hpp"
#include "null_gpu/libraries/cudnn_graph.hpp"
#include "null_gpu/machine.hpp"

namespace allocbench::null_gpu::cudnn {

namespace {

constexpr int kFloat = 0;
constexpr int kHalf = 2;
constexpr int kBrain = 9;
constexpr Size kAlignment = 16;
constexpr int kVolta = 70;   // the first with Tensor Cores, for halves
constexpr int kAmpere = 80;  // Tensor Cores take floats, as TF32

struct Shape {
  int type = kFloat;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;

  [[nodiscard]] bool good() const { return sizes.size() > 2 && strides.size() == sizes.size(); }
  [[nodiscard]] bool channels_last() const { return strides[1] == 1 && sizes[1] > 1; }
  [[nodiscard]] Size copy() const {
    Size const element = element_bytes(type);
    Size const channels = static_cast<Size>(sizes[1]) * element;
    Size bytes = (channels + kAlignment - 1) / kAlignment * kAlignment;
    for (Size axis = 0; axis < sizes.size(); ++axis) {
      if (axis != 1) bytes *= static_cast<Size>(sizes[axis]);
    }
    return bytes;
  }
};

std::vector<std::int64_t> numbers(Content const& tensor, int name) {
  auto const found = tensor.attributes.find(name);
  if (found == tensor.attributes.end()) return {};
  auto const& bytes = found->second.bytes;
  std::vector<std::int64_t> made(bytes.size() / sizeof(std::int64_t));
  std::memcpy(made.data(), bytes.data(), made.size() * sizeof(std::int64_t));
  return made;
}

Shape shape(Content const* tensor) {
  if (tensor == nullptr) return {};
  Shape made;
  auto const type = tensor->attributes.find(kTensorType);
  if (type != tensor->attributes.end() && type->second.bytes.size() >= sizeof(int)) {
    std::memcpy(&made.type, type->second.bytes.data(), sizeof(int));
  }
  made.sizes = numbers(*tensor, kTensorSizes);
  made.strides = numbers(*tensor, kTensorStrides);
  return made;
}

struct Convolution {
  Shape input;
  Shape filter;
  Shape output;
  bool forward = false;
};

Convolution convolution(Content const& operation) {
  if (operation.at(kForwardInput) != nullptr) {
    return {shape(operation.at(kForwardInput)), shape(operation.at(kForwardFilter)),
            shape(operation.at(kForwardOutput)), true};
  }
  if (operation.at(kDataFilter) != nullptr) {
    return {shape(operation.at(kDataInputGradient)), shape(operation.at(kDataFilter)),
            shape(operation.at(kDataOutputGradient)), false};
  }
  return {shape(operation.at(kFilterInput)), shape(operation.at(kFilterGradient)),
          shape(operation.at(kFilterOutputGradient)), false};
}

bool on_tensor_cores(int type) {
  int const capability = Machine::get().settings().compute_capability;
  if (type == kFloat) return capability >= kAmpere;
  return (type == kHalf || type == kBrain) && capability >= kVolta;
}

}  // namespace

Size convolution_workspace(Content const& graph) {
  auto const operations = graph.attributes.find(kGraphOperations);
  if (operations == graph.attributes.end() || operations->second.contents.size() != 1) return 0;
  Convolution const asked = convolution(*operations->second.contents.front());
  if (!asked.input.good() || !asked.filter.good() || !asked.output.good()) return 0;
  bool const grouped = asked.input.sizes[1] != asked.filter.sizes[1];
  if (grouped || asked.input.channels_last() || !on_tensor_cores(asked.input.type)) return 0;
  Size const bytes = asked.input.copy() + asked.filter.copy();
  return asked.forward ? bytes : bytes + asked.output.copy();
}

}  // namespace allocbench::null_gpu::cudnn

// native/libraries/cudnn_workspaces.cpp: a model of the workspaces of convolutions and of
// attention. SPDX-License-Identifier: Apache-2.0
//
// Tensor Cores compute convolutions of tensors with contiguous channels (NHWC), aligned to 16
// bytes: NVIDIA, "Convolutional Layers User's Guide", section "Tensor Layouts". Tensors in the
// other layout (NCHW) are transposed before and after. In the model, the workspace holds these
// copies. Grouped convolutions need no workspace. Three formulas say what is copied:
//
// "copies": all tensors of a convolution in NCHW, but not the output of a forward one.
// "spatial": the same, but nothing for filters of one pixel. Their convolution is a product of
// matrices, and each layout of the tensors is a layout of the matrices.
// "layout": as measured on an H100 with cuDNN 9.19 (tests/data/h100). Nothing for filters of one
// pixel. Each tensor is copied that is in NCHW or has channels to pad, the output of a forward
// convolution as well. Floats of less than four input channels are not padded. The gradient of a
// filter also has partial sums.
//
// These formulas give a filter of one pixel no workspace, as measured on the H100. On other cards,
// published peaks show that convolutions of floats with few channels have one with some batches
// (docs/truth.md). Nothing public says when, or how large it is, so only an upper bound is kept: of
// the 215 convolutions measured on the H100, none asked for five times the bytes of its tensors.
//
// Measured on an H100 with cuDNN 9.19. cuDNN computes attention by tiles, without a workspace for
// the scores, and asks for 256 bytes. Two cases differ:
// - Where several heads of the query share a head of the keys, the backward pass writes the
//   gradients of keys and values once for each head of the query, and then adds them up. In the
//   graph, these are the tensors before the reductions over heads.
// - A single query (a step of decoding) attends to parts of the keys in parallel. Each part leaves
//   a row of floats for each head, its largest score and its sum, to be combined in the end. A part
//   has at most 256 keys, and the number of parts is a power of two. There are no parts, and there
//   is no workspace, where sequences and heads of the keys alone keep all multiprocessors busy. The
//   threshold is an assumption: 8 heads of one sequence had parts, 20 heads of 80 sequences none.
// cuDNN's frontend, which is a part of PyTorch, adds the buffers that it needs itself.
#include <algorithm>
#include <bit>

#include "null_gpu/native/libraries/cudnn.hpp"
#include "null_gpu/native/libraries/workspaces.hpp"
#include "null_gpu/native/machine.hpp"

namespace allocbench::null_gpu::cudnn {

namespace {

constexpr Size kAlignment = 16;  // bytes
constexpr Size kSmallTile = 64;  // rows and columns
constexpr int kFewChannels = 4;
constexpr Size kMostOfTensors = 5;
constexpr int kMeasured = 90;  // the H100's compute capability
constexpr int kVolta = 70;     // the first with Tensor Cores: for half precision
constexpr int kAmpere = 80;    // the first whose Tensor Cores accept floats, as TF32

Convolution convolution_of(Content const& operation) {
  if (operation.at(kForwardInput) != nullptr) {
    return {shape_of(operation.at(kForwardInput)), shape_of(operation.at(kForwardFilter)),
            shape_of(operation.at(kForwardOutput)), Pass::kForward};
  }
  if (operation.at(kDataFilter) != nullptr) {
    return {shape_of(operation.at(kDataInputGradient)), shape_of(operation.at(kDataFilter)),
            shape_of(operation.at(kDataOutputGradient)), Pass::kInputGradient};
  }
  return {shape_of(operation.at(kFilterInput)), shape_of(operation.at(kFilterGradient)),
          shape_of(operation.at(kFilterOutputGradient)), Pass::kFilterGradient};
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

Size padded(std::int64_t channels, int type) {
  Size const elements = kAlignment / element_bytes(type);
  return (static_cast<Size>(channels) + elements - 1) / elements * elements;
}

// Bytes of a copy of a tensor or a filter, if its first two dimensions are as given.
Size copy_bytes(Shape const& shape, Size first, Size second) {
  Size bytes = first * second * element_bytes(shape.type);
  for (Size axis = 2; axis < shape.sizes.size(); ++axis) {
    bytes *= static_cast<Size>(shape.sizes[axis]);
  }
  return bytes;
}

Size copy_bytes(Shape const& shape) {
  return copy_bytes(shape, static_cast<Size>(shape.sizes[0]), padded(shape.sizes[1], shape.type));
}

// Formulas "copies" and "spatial".
Size transposed(Convolution const& convolution) {
  auto const& [input, filter, output, pass] = convolution;
  if (input.channels_last()) return 0;
  Size const bytes = copy_bytes(input) + copy_bytes(filter);
  return pass == Pass::kForward ? bytes : bytes + copy_bytes(output);
}

// Formula "layout".
Size transposed_or_padded(Convolution const& convolution) {
  auto const& [input, filter, output, pass] = convolution;
  bool const few = input.type == kFloat && input.sizes[1] < kFewChannels;
  Size const in = few ? static_cast<Size>(input.sizes[1]) : padded(input.sizes[1], input.type);
  Size const out = padded(output.sizes[1], output.type);
  auto const batch = static_cast<Size>(input.sizes[0]);
  auto const is_copied = [](Shape const& shape) {
    return !shape.channels_last() || padded(shape.sizes[1], shape.type) != Size(shape.sizes[1]);
  };
  Size bytes = 0;
  if (is_copied(input)) bytes += copy_bytes(input, batch, in);
  if (is_copied(output)) bytes += copy_bytes(output, batch, out);
  return bytes == 0 ? 0 : bytes + copy_bytes(filter, out, in) + kAlignment;
}

// Formula "layout": the sums of a filter's gradient are over all pixels of all images. The
// multiprocessors share the sums of a tile, and the workspace holds their parts.
Size partial_sums(Shape const& filter) {
  if (filter.type != kFloat) return 0;
  auto const rows = static_cast<Size>(filter.sizes[0]);
  Size columns = 1;
  for (Size axis = 1; axis < filter.sizes.size(); ++axis) {
    columns *= static_cast<Size>(filter.sizes[axis]);
  }
  Size const side = rows <= kSmallTile ? kSmallTile : 2 * kSmallTile;
  Size const tiles = (rows + side - 1) / side * ((columns + side - 1) / side);
  auto const processors = static_cast<Size>(Machine::get().settings().multiprocessors);
  Size const parts = tiles < processors ? processors / tiles * tiles : processors;
  return parts * side * side * sizeof(float);
}

// Keeps the bound of a convolution of floats with a filter of one pixel and few channels.
void keep_bound(Convolution const& convolution) {
  auto const& [input, filter, output, pass] = convolution;
  auto const channels = static_cast<Size>(std::min(input.sizes[1], output.sizes[1]));
  bool const measured = Machine::get().settings().compute_capability == kMeasured;
  if (input.type != kFloat || channels >= kSmallTile || measured) return;
  may_ask(kMostOfTensors * (copy_bytes(input) + copy_bytes(filter) + copy_bytes(output)));
}

}  // namespace

Size workspace_of(Convolution const& convolution) {
  auto const& assumed = assumption(Rule::kConvolution);
  if (assumed.is_bytes) return assumed.bytes;
  auto const& [input, filter, output, pass] = convolution;
  if (!input.valid() || !filter.valid() || !output.valid()) return 0;
  bool const grouped = input.sizes[1] != filter.sizes[1];
  if (grouped || !on_tensor_cores(input.type)) return 0;
  if (of_one_pixel(filter) && !assumed.is("copies")) {
    keep_bound(convolution);
    return 0;
  }
  if (!assumed.is("layout")) return transposed(convolution);
  Size const sums = pass == Pass::kFilterGradient ? partial_sums(filter) : 0;
  return transposed_or_padded(convolution) + sums;
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

namespace {

constexpr Size kLeast = 256;        // bytes
constexpr Size kBesideParts = 128;  // bytes
constexpr Size kKeysOfPart = 256;
constexpr Size kOfParts = 2;  // floats for each head and part: the largest score and the sum

// The dimensions of a query or of keys: batch, heads, length, and elements of a head.
enum Axis : Size { kBatch = 0, kHeads = 1, kLength = 2, kWidth = 3, kAxes = 4 };

Size at(Shape const& shape, Axis axis) { return static_cast<Size>(shape.sizes[axis]); }

Size bytes_of(Shape const& shape) {
  Size bytes = element_bytes(shape.type);
  for (auto const size : shape.sizes) bytes *= static_cast<Size>(size);
  return bytes;
}

// The bytes that single queries need to combine what they computed for parts of the keys.
Size parts_of(Shape const& query, Shape const& key) {
  auto const multiprocessors = static_cast<Size>(Machine::get().settings().multiprocessors);
  if (at(key, kBatch) * at(key, kHeads) >= multiprocessors) return 0;
  Size const parts = std::bit_ceil((at(key, kLength) + kKeysOfPart - 1) / kKeysOfPart);
  if (parts <= 1) return 0;
  Size const rows = parts * at(query, kBatch) * at(query, kHeads);
  return kBesideParts + rows * (at(query, kWidth) + kOfParts) * sizeof(float);
}

// The bytes of a tensor that a reduction adds up over heads.
Size heads_of(Content const& operation) {
  auto const from = shape_of(operation.at(kReductionInput));
  auto const to = shape_of(operation.at(kReductionOutput));
  if (from.sizes.size() != kAxes || to.sizes.size() != kAxes) return 0;
  return from.sizes[kHeads] == to.sizes[kHeads] ? 0 : bytes_of(from);
}

}  // namespace

Size attention_workspace(Content const& graph) {
  int products = 0;
  Size heads = 0;
  for (auto const& operation : operations_of(graph)) {
    if (operation == nullptr) continue;
    if (operation->at(kAttentionQuery) != nullptr) {
      auto const query = shape_of(operation->at(kAttentionQuery));
      auto const key = shape_of(operation->at(kAttentionKey));
      bool const known = query.sizes.size() == kAxes && key.sizes.size() == kAxes;
      return known && at(query, kLength) == 1 ? parts_of(query, key) : kLeast;
    }
    products += operation->at(kMatrixProductLeft) != nullptr ? 1 : 0;
    heads += heads_of(*operation);
  }
  return products < 2 ? 0 : kLeast + heads;
}

}  // namespace allocbench::null_gpu::cudnn

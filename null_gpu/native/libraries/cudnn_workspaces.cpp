// native/libraries/cudnn_workspaces.cpp: a model of the workspaces of convolutions and of
// attention. SPDX-License-Identifier: Apache-2.0
//
// Tensor Cores compute convolutions of tensors with contiguous channels (NHWC), aligned to 16
// bytes: NVIDIA, "Convolutional Layers User's Guide", section "Tensor Layouts". Tensors in the
// other layout (NCHW) are transposed before and after. In the model, the workspace holds these
// copies. Three formulas say what is copied:
//
// "copies": all tensors of a convolution in NCHW, but not the output of a forward one, and nothing
// for grouped convolutions.
// "spatial": the same, but nothing for filters of one pixel. Their convolution is a product of
// matrices, and each layout of the tensors is a layout of the matrices.
// "layout": as measured on an H100 with cuDNN 9.19, with single convolutions and with those of
// whole networks (tests/data/h100):
// - Each tensor is copied that is in NCHW or has channels to pad. Floats of less than four input
//   channels are padded for the gradient of the filter only. This gradient also has partial sums.
// - A filter of one pixel is a product of matrices for each image. The gradient of the filter adds
//   up a product for each image, in floats. Tensors are copied where rows of pixels are not aligned
//   or strided, and where these products would be large.
// These rules are for the H100 alone, since some of them did not bring other cards closer to
// published peaks, and the others were measured on no other card:
// - Floats are written without a copy if they have 64 channels or become 97 to 192 of at most 96.
// - Images of less than four channels need nothing with small filters, and NHWC is copied to NCHW.
// - Few floats of small images, and sounds of one channel, need nothing.
// - Groups of channels are copied, too. Those of less than 64 are padded to a power of two, in both
//   layouts. The gradient of the filter copies floats in NHWC to NCHW, as it does for volumes of
//   less than 64 channels. A filter for each channel has partial sums of its gradient in NHWC;
//   those of large filters are as large as eight images.
//
// On other cards, published peaks show that convolutions of one pixel of floats with few channels
// have a workspace with some batches (docs/truth.md). Nothing public says when, or how large it is,
// so only an upper bound is kept: of 215 single convolutions measured on the H100, none asked for
// five times the bytes of its tensors.
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
constexpr int kAlignedPixels = 4;
constexpr int kWrittenPixels = 8;
constexpr Size kMostChannelsWritten = 96;     // of floats whose output is not copied
constexpr Size kMostOutputsWritten = 192;     // of the same
constexpr Size kFewElements = Size{1} << 16;  // of an image or of all images, where that matters
constexpr Size kFewOutputs = 32;              // of small images without a workspace
constexpr Size kPixelsOfPart = 3136;          // whose products make one part of a sum of floats
constexpr Size kLargeFilter = 7;              // rows of a filter for each channel
constexpr Size kLeastElements = 3 * (Size{1} << 17);  // of images with such filters
constexpr Size kMostOfProduct = Size{2} << 20;  // bytes of a filter with a product for each image
constexpr Size kMostChannels = 192;             // with such products of unaligned floats
constexpr Size kMostImages = 64;                // with such products of unaligned halves
constexpr Size kMostParts = 13;                 // of sums of halves
constexpr Size kLeastParts = 3;
constexpr Size kFewPixels = Size{1} << 14;  // whose halves are added up in one part
constexpr Size kBesideSums = 159;           // bytes
constexpr Size kBesideCopies = 131;         // bytes
constexpr Size kSumsOfImage = 8;            // of a filter for each channel
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

bool is_grouped(Convolution const& convolution) {
  return convolution.input.sizes[1] != convolution.filter.sizes[1];
}

bool is_measured() { return Machine::get().settings().compute_capability == kMeasured; }

Size processors() { return static_cast<Size>(Machine::get().settings().multiprocessors); }

bool of_volumes(Shape const& filter) { return filter.sizes.size() > 4 && filter.sizes[2] > 1; }

// A convolution in one dimension, which PyTorch makes one of images of one row.
bool of_lines(Shape const& input) { return input.sizes.size() == 4 && input.sizes[2] == 1; }

bool is_strided(Convolution const& convolution) {
  return 2 * convolution.output.sizes.back() <= convolution.input.sizes.back() + 1;
}

Size tiles(Size size, Size side) { return (size + side - 1) / side; }

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
  for (Size axis = 2; axis < shape.sizes.size(); ++axis)
    bytes *= static_cast<Size>(shape.sizes[axis]);
  return bytes;
}

Size copy_bytes(Shape const& shape) {
  return copy_bytes(shape, static_cast<Size>(shape.sizes[0]), padded(shape.sizes[1], shape.type));
}

Size pixels(Shape const& shape) { return copy_bytes(shape, 1, 1) / element_bytes(shape.type); }

// Bytes of a copy in floats.
Size floats_of(Shape const& shape, Size first, Size second) {
  return copy_bytes(shape, first, second) / element_bytes(shape.type) * sizeof(float);
}

// Formulas "copies" and "spatial".
Size transposed(Convolution const& convolution) {
  auto const& [input, filter, output, pass] = convolution;
  if (input.channels_last()) return 0;
  Size const bytes = copy_bytes(input) + copy_bytes(filter);
  return pass == Pass::kForward ? bytes : bytes + copy_bytes(output);
}

// Formula "layout": copies of the input and, if asked for, of the output and the filter.
Size transposed_or_padded(Convolution const& convolution, bool of_output, bool of_filter) {
  auto const& [input, filter, output, pass] = convolution;
  bool const few =
      input.type == kFloat && input.sizes[1] < kFewChannels && pass != Pass::kFilterGradient;
  Size const in = few ? static_cast<Size>(input.sizes[1]) : padded(input.sizes[1], input.type);
  Size const out = padded(output.sizes[1], output.type);
  auto const batch = static_cast<Size>(input.sizes[0]);
  auto const is_copied = [](Shape const& shape) {
    return !shape.channels_last() || padded(shape.sizes[1], shape.type) != Size(shape.sizes[1]);
  };
  Size bytes = 0;
  if (is_copied(input)) bytes += copy_bytes(input, batch, in);
  if (of_output && is_copied(output)) bytes += copy_bytes(output, batch, out);
  if (bytes == 0) return 0;
  Size const of_group = is_grouped(convolution) ? static_cast<Size>(filter.sizes[1]) : in;
  return bytes + (of_filter ? copy_bytes(filter, out, of_group) : 0) + kAlignment;
}

// Bytes beside the parts of sums, on the H100: a counter for each part of each tile, and others.
Size counters(Size parts) { return is_measured() ? kBesideSums + parts * sizeof(int) : 0; }

// Formula "layout": the sums of a filter's gradient are over all pixels of all images. The
// multiprocessors share the sums of a tile, and the workspace holds their parts, in floats.
Size partial_sums(Convolution const& convolution) {
  auto const& [input, filter, output, pass] = convolution;
  auto const rows = static_cast<Size>(filter.sizes[0]);
  Size const columns = copy_bytes(filter, 1, filter.sizes[1]) / element_bytes(filter.type);
  auto const tiles_of = [&](Size side) { return tiles(rows, side) * tiles(columns, side); };
  if (filter.type == kFloat) {
    Size const side = rows <= kSmallTile ? kSmallTile : 2 * kSmallTile;
    Size const count = tiles_of(side);
    Size const parts = count < processors() ? processors() / count * count : processors();
    return parts * side * side * sizeof(float) + counters(std::max(parts, count));
  }
  Size const added = static_cast<Size>(output.sizes[0]) * pixels(output);
  Size const parts = std::min(kMostParts, processors() / tiles_of(2 * kSmallTile));
  if (added <= kFewPixels || parts < kLeastParts) return 0;
  Size const wide = columns % (2 * kSmallTile) == 0 ? 2 * kSmallTile : kSmallTile;
  Size const count = tiles(rows, 2 * kSmallTile) * tiles(columns, wide);
  return parts * tiles(rows, kSmallTile) * kSmallTile * columns * sizeof(float) +
         counters(processors() / count * count);
}

// Formula "layout" for a strided filter of one pixel. sums: those of partial_sums(). Floats are
// written without a copy where rows of pixels are aligned.
Size strided_product(Convolution const& convolution, Size sums) {
  auto const& [input, filter, output, pass] = convolution;
  bool const floats = input.type == kFloat;
  Size const most = pass == Pass::kForward                   ? kSmallTile
                    : pass == Pass::kInputGradient && floats ? kMostChannels
                                                             : kSmallTile / 2;
  if (Size(input.sizes[1]) <= most && input.sizes.size() == 4) return 0;
  bool const written = floats && pass == Pass::kForward && pixels(output) % kWrittenPixels == 0;
  return transposed_or_padded(convolution, !written, written) + sums;
}

// Formula "layout" on the H100 for the gradient of a filter of one pixel in NHWC: parts of a sum of
// floats.
Size sums_of_product(Convolution const& convolution) {
  auto const& [input, filter, output, pass] = convolution;
  if (!is_measured() || input.type != kFloat || pass != Pass::kFilterGradient) return 0;
  Size const tile = 8 * kSmallTile * kSmallTile, size = floats_of(filter, 1, input.sizes[1]);
  Size const result = size / sizeof(float) * Size(output.sizes[1]);
  Size const count = tiles(result, tile);
  Size const added = static_cast<Size>(output.sizes[0]) * pixels(output);
  Size const most = tiles(added, is_strided(convolution) ? 8 * kSmallTile : kSmallTile);
  return std::min(processors() / std::min(count, processors()), most) * std::max(result, tile / 4) *
         sizeof(float);
}

// Formula "layout" for a filter of one pixel. sums: those of partial_sums().
Size product(Convolution const& convolution, Size sums) {
  auto const& [input, filter, output, pass] = convolution;
  if (input.channels_last()) return sums_of_product(convolution);
  if (pixels(output) != pixels(input)) return strided_product(convolution, sums);
  auto const batch = static_cast<Size>(input.sizes[0]);
  auto const channels = static_cast<Size>(input.sizes[1]);
  auto const outputs = static_cast<Size>(output.sizes[1]);
  Size const least = std::min(channels, outputs);
  bool const aligned = pixels(input) % kAlignedPixels == 0;
  Size const copies = transposed_or_padded(convolution, true, false);
  if (pass != Pass::kFilterGradient) return aligned || least <= kSmallTile ? 0 : copies;
  if (input.sizes.size() > 4) return copies + sums;
  Size const result = channels * outputs * sizeof(float);
  bool const few = input.type == kFloat ? least <= kMostChannels : batch <= kMostImages;
  bool const small = batch * result <= 8 * kMostOfProduct ||
                     (result < kMostOfProduct && batch * result < 4 * copies);
  return (aligned ? small : few) ? batch * result : copies + sums;
}

// Formula "layout" on the H100: what the kernels for many pixels, or strided ones, have in
// addition.
Size beside(Convolution const& convolution) {
  auto const& [input, filter, output, pass] = convolution;
  if (!is_measured() || pass == Pass::kFilterGradient) return 0;
  bool const forward = pass == Pass::kForward;
  Size const made = Size(input.sizes[0]) * pixels(forward ? output : input);
  bool const many = forward ? made >= kFewPixels : made > 2 * kFewPixels || is_strided(convolution);
  return many ? kBesideCopies : 0;
}

Size copies_of_images(Convolution const& convolution) {
  return copy_bytes(convolution.input) + copy_bytes(convolution.output) + kAlignment;
}

// The channels of a group, padded to a power of two.
Size in_group(Size channels) { return std::max(std::bit_ceil(channels), Size{kFewChannels}); }

bool is_padded_in_groups(Size width) {
  return width > 1 && width < kSmallTile && width != in_group(width);
}

// Formula "layout" on the H100 for groups whose channels are padded: copies in both layouts.
Size copies_padded_in_groups(Convolution const& convolution) {
  auto const& [input, filter, output, pass] = convolution;
  auto const batch = static_cast<Size>(input.sizes[0]);
  Size const groups = Size(input.sizes[1]) / Size(filter.sizes[1]);
  Size const in = in_group(Size(filter.sizes[1])), out = in_group(Size(output.sizes[1]) / groups);
  return copy_bytes(input, batch, groups * in) + copy_bytes(output, batch, groups * out) +
         copy_bytes(filter, groups * out, in) + kAlignment + beside(convolution);
}

// Formula "layout" on the H100 for groups of channels.
Size in_groups(Convolution const& convolution, Size sums) {
  auto const& [input, filter, output, pass] = convolution;
  if (!is_measured()) return 0;
  auto const width = static_cast<Size>(filter.sizes[1]);
  if (is_padded_in_groups(width)) return copies_padded_in_groups(convolution);
  bool const last = input.channels_last() && input.type == kFloat;
  if (width > 1 && last && pass == Pass::kFilterGradient)
    return copies_of_images(convolution) + sums;
  if (width > 1 && last && pass == Pass::kInputGradient && is_strided(convolution))
    return copy_bytes(output) + copy_bytes(filter) + kAlignment;
  if (width > 1) return transposed_or_padded(convolution, true, true) + sums;
  if (pass != Pass::kFilterGradient || !input.channels_last()) return 0;
  auto const batch = static_cast<Size>(input.sizes[0]);
  auto const channels = static_cast<Size>(input.sizes[1]);
  Size const elements = batch * channels * pixels(output);
  Size const parts = kSumsOfImage * elements * element_bytes(input.type);
  auto const rows = static_cast<Size>(filter.sizes.back());
  if (input.type == kFloat) {
    bool const few = channels <= kMostChannels && elements >= kLeastElements;
    Size const shared = processors() * floats_of(filter, channels, kFewChannels);
    return rows >= kLargeFilter && few ? parts + shared : 0;
  }
  Size const of_image = kSumsOfImage * floats_of(filter, channels, 1);
  return rows > kLargeFilter ? parts + of_image : batch * of_image;
}

// Formula "layout" on the H100 for floats of few channels in NHWC. Strided ones are computed in
// NCHW.
Size of_few_last(Convolution const& convolution) {
  auto const& [input, filter, output, pass] = convolution;
  auto const batch = static_cast<Size>(input.sizes[0]);
  auto const channels = static_cast<Size>(input.sizes[1]);
  auto const outputs = static_cast<Size>(output.sizes[1]);
  bool const small = floats_of(filter, 1, channels) < kSmallTile * sizeof(float);
  Size const of_filter = copy_bytes(filter, outputs, channels) + kAlignment;
  Size const of_images = copy_bytes(input, batch, channels);
  if (pass == Pass::kForward) return small && outputs <= kSmallTile / 2 ? 0 : of_images + of_filter;
  bool const strided = is_strided(convolution);
  Size const of_both = of_images + copy_bytes(output, batch, outputs);
  if (pass == Pass::kInputGradient)
    return strided ? of_both + of_filter : transposed_or_padded(convolution, true, true);
  Size const added = batch * pixels(output);
  if (small) return added < kFewElements ? of_both + of_filter : 0;
  Size const row = floats_of(filter, 1, kFewChannels);
  Size const shared = tiles(outputs, kSmallTile) * tiles(row, 4 * kSmallTile * sizeof(float));
  Size const parts = std::max<Size>((processors() + added / kPixelsOfPart) / shared, 1);
  return of_both + parts * outputs * row + kAlignment;
}

// Formula "layout" on the H100 for images of few channels, but not for the gradient of images.
Size of_few_channels(Convolution const& convolution) {
  auto const& [input, filter, output, pass] = convolution;
  bool const of_filter = pass == Pass::kFilterGradient;
  bool const small = floats_of(filter, 1, Size(filter.sizes[1])) < kSmallTile * sizeof(float);
  bool const copied = input.channels_last() && !is_strided(convolution);
  if (small && !copied && !(of_filter && input.type != kFloat)) return 0;
  if (!of_filter) return transposed_or_padded(convolution, true, true);
  auto const rows = static_cast<Size>(filter.sizes[0]);
  Size const row = floats_of(filter, 1, kFewChannels);
  Size const shared = tiles(rows, kSmallTile) * tiles(row, 4 * kSmallTile * sizeof(float));
  return transposed_or_padded(convolution, true, false) +
         std::max<Size>(processors() / shared, 1) * rows * row;
}

// Formula "layout" on the H100: whether floats are written without a copy.
bool is_written(Convolution const& convolution) {
  auto const& [input, filter, output, pass] = convolution;
  if (!is_measured() || input.type != kFloat || pass != Pass::kForward) return false;
  auto const channels = static_cast<Size>(input.sizes[1]);
  auto const outputs = static_cast<Size>(output.sizes[1]);
  bool const lines = of_lines(input);
  if (outputs == kSmallTile)
    return lines || of_volumes(filter) ||
           (filter.sizes.back() < kFewChannels &&
            Size(input.sizes[0]) * pixels(input) < kFewElements);
  if (of_volumes(filter)) return false;
  if (lines && outputs == 2 * kSmallTile) return channels <= 2 * kSmallTile;
  if (channels <= kFewChannels) return outputs > kSmallTile;
  return channels <= kMostChannelsWritten && outputs > kMostChannelsWritten &&
         outputs <= kMostOutputsWritten;
}

// Formula "layout" on the H100: whether the gradient of a filter copies floats in NHWC to NCHW.
bool is_copied_last(Convolution const& convolution) {
  auto const& [input, filter, output, pass] = convolution;
  bool const floats = is_measured() && input.type == kFloat && input.channels_last();
  return floats && pass == Pass::kFilterGradient && of_volumes(filter) &&
         Size(input.sizes[1]) < kSmallTile;
}

// Formula "layout" on the H100: whether few floats in few images need nothing.
bool is_idle(Convolution const& convolution) {
  auto const& [input, filter, output, pass] = convolution;
  if (!is_measured() || input.type != kFloat || of_volumes(filter)) return false;
  if (of_lines(input) && input.sizes[1] == 1) return true;
  if (pass != Pass::kForward || Size(output.sizes[1]) > kFewOutputs) return false;
  Size const made = static_cast<Size>(output.sizes[0]) * pixels(output);
  return of_lines(input) || is_strided(convolution) || made < kFewElements / 8;
}

// Formula "layout".
Size by_layout(Convolution const& convolution) {
  auto const& [input, filter, output, pass] = convolution;
  Size const sums = pass == Pass::kFilterGradient ? partial_sums(convolution) : 0;
  if (is_grouped(convolution)) return in_groups(convolution, sums);
  if (of_one_pixel(filter)) return product(convolution, sums);
  auto const channels = static_cast<Size>(input.sizes[1]);
  if (is_idle(convolution)) return 0;
  if (is_measured() && channels < kFewChannels) {
    if (input.type == kFloat && input.channels_last()) return of_few_last(convolution);
    if (pass != Pass::kInputGradient) return of_few_channels(convolution);
  }
  if (is_copied_last(convolution)) return copies_of_images(convolution) + sums;
  bool const written = is_written(convolution);
  Size const bytes = transposed_or_padded(convolution, !written, true) + sums;
  return bytes == 0 || written ? bytes : bytes + beside(convolution);
}

// Keeps the bound of a convolution of floats with a filter of one pixel and few channels.
void keep_bound(Convolution const& convolution) {
  auto const& [input, filter, output, pass] = convolution;
  auto const channels = static_cast<Size>(std::min(input.sizes[1], output.sizes[1]));
  if (input.type != kFloat || channels >= kSmallTile || is_measured()) return;
  may_ask(kMostOfTensors * (copy_bytes(input) + copy_bytes(filter) + copy_bytes(output)));
}

}  // namespace

Size workspace_of(Convolution const& convolution) {
  auto const& assumed = assumption(Rule::kConvolution);
  if (assumed.is_bytes) return assumed.bytes;
  auto const& [input, filter, output, pass] = convolution;
  if (!input.valid() || !filter.valid() || !output.valid()) return 0;
  if (!on_tensor_cores(input.type)) return 0;
  bool const grouped = is_grouped(convolution);
  bool const one_pixel = of_one_pixel(filter) && !grouped;
  if (one_pixel && !assumed.is("copies")) keep_bound(convolution);
  if (assumed.is("layout")) return by_layout(convolution);
  return grouped || (one_pixel && !assumed.is("copies")) ? 0 : transposed(convolution);
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

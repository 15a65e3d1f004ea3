// native/libraries/cudnn_attention.cpp: a model of the workspace of attention.
// SPDX-License-Identifier: Apache-2.0
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
#include <bit>

#include "null_gpu/native/libraries/cudnn.hpp"
#include "null_gpu/native/libraries/cudnn_graph.hpp"
#include "null_gpu/native/machine.hpp"

namespace allocbench::null_gpu::cudnn {

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

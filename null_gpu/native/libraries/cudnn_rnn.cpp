// native/libraries/cudnn_rnn.cpp: cuDNN's recurrent networks.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/libraries/cudnn.hpp"
#include "null_gpu/native/libraries/workspaces.hpp"

using namespace allocbench::null_gpu;
using namespace allocbench::null_gpu::cudnn;

namespace {

struct Network {
  int mode = 0, bias = 0, bidirectional = 0, type = 0;
  int input = 0, hidden = 0, projected = 0, layers = 0;

  int directions() const { return bidirectional != 0 ? 2 : 1; }
  int pseudo_layers() const { return layers * directions(); }
  // Matrices of a layer: two per gate, for the input and for the state, and that of a projection.
  int matrices() const { return 2 * gates() + (projects() ? 1 : 0); }
  int gates() const { return mode == kLstm ? 4 : mode == kGru ? 3 : 1; }
  // Values of a step and unit that the backward pass reads.
  int kept() const { return mode == kLstm ? 5 : mode == kGru ? 6 : 1; }
  int biases() const { return bias == 0 ? 0 : 2 * gates(); }
  bool projects() const { return projected != 0 && projected != hidden; }
  int output() const { return projects() ? projected : hidden; }
  int rows(int matrix) const { return matrix < 2 * gates() ? hidden : projected; }
  Size columns(int pseudo_layer, int matrix) const {
    if (matrix >= 2 * gates()) return hidden;
    if (matrix >= gates()) return output();
    bool const first = pseudo_layer < directions();
    return first ? input : Size(output()) * directions();
  }
  // Elements before a matrix. All matrices precede all biases.
  Size before_matrix(int pseudo_layer, int matrix) const {
    Size elements = 0;
    for (int layer = 0; layer <= pseudo_layer && layer < pseudo_layers(); ++layer) {
      int const end = layer == pseudo_layer ? matrix : matrices();
      for (int earlier = 0; earlier < end; ++earlier) {
        elements += columns(layer, earlier) * rows(earlier);
      }
    }
    return elements;
  }
  Size before_bias(int pseudo_layer, int matrix) const {
    Size const earlier_biases = Size(pseudo_layer) * biases() + matrix;
    return before_matrix(pseudo_layers(), 0) + earlier_biases * hidden;
  }
};

constexpr Size kForEach = Size{8} << 20;  // bytes, for each layer and direction
constexpr Size kBesideValues = 256;       // bytes

using Networks = Descriptors<Network>;
// The padded length of a batch in elements: the longest sequence times the number of sequences.
using BatchLengths = Descriptors<Size>;

}  // namespace

NULL_GPU_GIVES(cudnnSetRNNDescriptor_v8,
               (Handle descriptor, int, int mode, int bias, int direction, int, int type, int, int,
                int input, int hidden, int projected, int layers),
               Networks::get().set(descriptor,
                                   {mode, bias, direction, type, input, hidden, projected, layers}))
NULL_GPU_GIVES(cudnnSetRNNDataDescriptor,
               (Handle descriptor, int, int, int longest, int batch, int, int const*, void*),
               BatchLengths::get().set(descriptor, Size(longest) * batch))
NULL_GPU_GIVES(cudnnDestroyRNNDescriptor, (Handle descriptor), Networks::get().destroy(descriptor))
NULL_GPU_GIVES(cudnnDestroyRNNDataDescriptor, (Handle descriptor),
               BatchLengths::get().destroy(descriptor))

NULL_GPU_API int null_cudnnGetRNNWeightSpaceSize(Handle, Handle descriptor, Size* bytes) {
  Network const network = Networks::get().of(descriptor);
  *bytes = network.before_bias(network.pseudo_layers(), 0) * element_bytes(network.type);
  return kSuccess;
}

NULL_GPU_API int null_cudnnGetRNNWeightParams(Handle, Handle descriptor, int pseudo_layer, Size,
                                              char* weights, int matrix, Handle matrix_descriptor,
                                              void** matrix_address, Handle bias_descriptor,
                                              void** bias_address) {
  Network const network = Networks::get().of(descriptor);
  bool const has_matrix = matrix < network.matrices();
  Size const unit = element_bytes(network.type);
  if (matrix_address != nullptr) {
    *matrix_address =
        has_matrix ? weights + network.before_matrix(pseudo_layer, matrix) * unit : nullptr;
  }
  if (bias_address != nullptr) {
    bool const has_bias = matrix < network.biases();
    *bias_address = has_bias ? weights + network.before_bias(pseudo_layer, matrix) * unit : nullptr;
  }
  int const columns = static_cast<int>(network.columns(pseudo_layer, matrix));
  int const of_matrix[] = {1, network.rows(matrix), columns}, of_bias[] = {1, network.hidden, 1};
  Tensors::get().set(matrix_descriptor, contiguous(network.type, 3, of_matrix));
  Tensors::get().set(bias_descriptor, contiguous(network.type, 3, of_bias));
  return kSuccess;
}

// The formula "gates" of workspaces.json, as measured on an H100 with cuDNN 9.19. The workspace
// holds the gates of all steps of one layer twice, and 8 MiB for each layer and direction. The
// reserve holds what the backward pass reads: values of each step and layer, and the outputs of all
// layers but the last.
NULL_GPU_API int null_cudnnGetRNNTempSpaceSizes(Handle, Handle descriptor, int training,
                                                Handle input, Size* work, Size* reserve) {
  Network const network = Networks::get().of(descriptor);
  Size const state = BatchLengths::get().of(input) * network.hidden * network.directions() *
                     element_bytes(network.type);
  auto const chosen = [](Rule rule, Size bytes) {
    auto const& assumed = assumption(rule);
    return asked(rule, assumed.is("gates") ? bytes : assumed.bytes);
  };
  Size const work_bytes = 2 * state * network.gates() + kForEach * network.pseudo_layers();
  if (work != nullptr) *work = chosen(Rule::kRnnWorkspace, work_bytes);
  if (reserve == nullptr) return kSuccess;
  Size const values = network.kept() * network.layers + network.layers - 1;
  Size const kept = state * values + kBesideValues;
  *reserve = training != 0 ? chosen(Rule::kRnnReserve, kept) : 0;
  return kSuccess;
}

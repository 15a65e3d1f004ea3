// native/libraries/cudnn_convolution.hpp: a model of the workspace of convolutions.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu::cudnn {

// A tensor or a filter: batch or output channels, channels, and the other dimensions.
struct Shape {
  int type = 0;  // DataType
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;

  [[nodiscard]] bool valid() const { return sizes.size() > 2 && strides.size() == sizes.size(); }
  [[nodiscard]] bool channels_last() const { return strides[1] == 1 && sizes[1] > 1; }
};

enum class Pass { kForward, kInputGradient, kFilterGradient };

// The tensors of a convolution or of one of its gradients.
struct Convolution {
  Shape input;
  Shape filter;
  Shape output;
  Pass pass = Pass::kForward;
};

// Bytes of its workspace by the rule of convolutions in workspaces.json.
Size workspace_of(Convolution const& convolution);

}  // namespace allocbench::null_gpu::cudnn

// null_gpu/libraries/cudnn.hpp: what the parts of cuDNN share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <mutex>
#include <unordered_map>

#include "null_gpu/api.hpp"

namespace allocbench::null_gpu::cudnn {

// The bytes of an element of a cudnnDataType_t.
inline Size element_bytes(int type) {
  switch (type) {
    case 1:
      return 8;  // double
    case 2:
    case 9:
      return 2;  // half, bfloat16
    case 3:
    case 7:
    case 12:
    case 13:
      return 1;  // int8, uint8, fp8
    case 10:
      return 8;  // int64
    default:
      return 4;
  }
}

struct Tensor {
  int type = 0;
  int rank = 0;
  std::array<int, 8> sizes{};
};

// Tensors by their descriptors.
class Tensors {
 public:
  static Tensors& get();
  void set(Handle descriptor, Tensor tensor);
  Tensor of(Handle descriptor);
  void destroy(Handle descriptor);

 private:
  std::mutex mutex_;
  std::unordered_map<Handle, Tensor> tensors_;
};

}  // namespace allocbench::null_gpu::cudnn

// native/libraries/cudnn.hpp: what the parts of cuDNN share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <unordered_map>
#include <vector>

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu::cudnn {

enum DataType : int {  // cudnnDataType_t
  kFloat = 0,
  kDouble = 1,
  kHalf = 2,
  kInt8 = 3,
  kInt32 = 4,
  kUint8 = 6,
  kBfloat16 = 9,
  kInt64 = 10,
  kBoolean = 11,
  kFloat8E4M3 = 12,
  kFloat8E5M2 = 13,
};

// The bytes of an element of a cudnnDataType_t.
inline Size element_bytes(int type) {
  switch (type) {
    case kDouble:
    case kInt64:
      return 8;
    case kHalf:
    case kBfloat16:
      return 2;
    case kInt8:
    case kUint8:
    case kBoolean:
    case kFloat8E4M3:
    case kFloat8E5M2:
      return 1;
    default:
      return 4;
  }
}

enum NetworkMode : int { kLstm = 2, kGru = 3 };  // cudnnRNNMode_t

inline constexpr int kMostDimensions = 8;

// The content of the descriptor of a tensor or a filter.
struct Tensor {
  int type = 0;
  int format = 0;  // of a filter: cudnnTensorFormat_t
  std::vector<int> sizes;
  std::vector<int> strides;
};

// A tensor or filter whose last dimension is contiguous. Dimensions beyond kMostDimensions are left
// out.
Tensor contiguous(int type, int rank, int const* sizes);

// Tensors and filters by their descriptors.
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

// The CUDA runtime's functions that allocbench offers to a library, for adapters of originals.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

extern "C" {
int cudaMalloc(void** segment, std::size_t size);
int cudaFree(void* segment);
int cudaMemGetInfo(std::size_t* free, std::size_t* capacity);
}

namespace original {

// A segment of the simulated GPU, or null.
inline void* segment(std::size_t size) {
  void* made = nullptr;
  return cudaMalloc(&made, size) == 0 ? made : nullptr;
}

// Bytes of the simulated GPU.
inline std::size_t capacity() {
  std::size_t free = 0, capacity = 0;
  cudaMemGetInfo(&free, &capacity);
  return capacity;
}

}  // namespace original

#define ORIGINAL extern "C" [[gnu::visibility("default")]]

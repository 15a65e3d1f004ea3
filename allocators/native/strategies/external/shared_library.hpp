// strategies/external/shared_library.hpp: the two functions of a pluggable allocator of PyTorch.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "strategies/external.hpp"

namespace allocbench {

// A library keeps its state in globals, so every allocator loads a copy of its own. While one of
// its functions runs, its calls of the CUDA runtime (cudaMalloc, cudaFree, cudaMemGetInfo and those
// around them: see shared_library.cpp) are calls of the source.
class SharedLibrary final : public ExternalAllocator {
 public:
  // Throws SpecError if the library cannot be loaded or lacks a function.
  SharedLibrary(std::string const& file, std::string const& malloc, std::string const& free,
                SegmentSource& source);
  ~SharedLibrary() override;

  Address allocate(Size requested, Stream stream) override;
  void free(Address address, Size requested, Stream stream) override;

 private:
  // As PyTorch declares them: size, device, CUDA stream.
  using Malloc = void* (*)(ssize_t, int, void*);
  using Free = void (*)(void*, ssize_t, int, void*);

  SegmentSource& source_;
  void* library_ = nullptr;
  Malloc malloc_ = nullptr;
  Free free_ = nullptr;
};

}  // namespace allocbench

// RMM's pool and arena, from the package librmm, as pluggable allocators. RESOURCE is
// pool_memory_resource or arena_memory_resource.
// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <memory>
#include <rmm/cuda_stream_view.hpp>
#include <rmm/mr/device/arena_memory_resource.hpp>
#include <rmm/mr/device/device_memory_resource.hpp>
#include <rmm/mr/device/pool_memory_resource.hpp>

#define ORIGINAL extern "C" [[gnu::visibility("default")]]

// The other functions of the CUDA runtime that RMM calls. Streams and events end at once.
ORIGINAL cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  static int events = 0;
  *event = reinterpret_cast<cudaEvent_t>(static_cast<std::uintptr_t>(++events));
  return cudaSuccess;
}
ORIGINAL cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
ORIGINAL cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
ORIGINAL cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
ORIGINAL cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return cudaSuccess;
}
ORIGINAL cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
ORIGINAL char const* cudaGetErrorName(cudaError_t) { return "error"; }
ORIGINAL cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  return *value = 0, cudaSuccess;
}

namespace {

class Gpu final : public rmm::mr::device_memory_resource {
  void* do_allocate(std::size_t size, rmm::cuda_stream_view) override {
    void* segment = nullptr;
    if (cudaMalloc(&segment, size) != cudaSuccess) throw rmm::out_of_memory("the GPU is full");
    return segment;
  }
  void do_deallocate(void* segment, std::size_t, rmm::cuda_stream_view) override {
    cudaFree(segment);
  }
};

// Half of the free memory, which is RMM's default for both.
std::size_t half() {
  std::size_t free = 0, capacity = 0;
  cudaMemGetInfo(&free, &capacity);
  return free / 2 / rmm::CUDA_ALLOCATION_ALIGNMENT * rmm::CUDA_ALLOCATION_ALIGNMENT;
}

Gpu gpu;
std::unique_ptr<rmm::mr::RESOURCE<Gpu>> resource;

rmm::cuda_stream_view view(cudaStream_t stream) { return rmm::cuda_stream_view{stream}; }

}  // namespace

ORIGINAL void* my_malloc(ssize_t size, int, cudaStream_t stream) {
  try {
    if (resource == nullptr) resource = std::make_unique<rmm::mr::RESOURCE<Gpu>>(&gpu, half());
    return resource->allocate(static_cast<std::size_t>(size), view(stream));
  } catch (std::bad_alloc const&) {
    return nullptr;
  }
}

ORIGINAL void my_free(void* block, ssize_t size, int, cudaStream_t stream) {
  resource->deallocate(block, static_cast<std::size_t>(size), view(stream));
}

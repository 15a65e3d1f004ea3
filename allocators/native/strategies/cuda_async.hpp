// strategies/cuda_async.hpp: the CUDA driver's stream-ordered memory pool.
// SPDX-License-Identifier: Apache-2.0
//
// Each request is a cuMemAllocFromPoolAsync and each free a cuMemFreeAsync on the block's stream,
// in a pool owned by this allocator. The driver decides where blocks are placed and which memory it
// keeps: free memory above `release_threshold` goes back when the program synchronizes a stream or
// an event. A block can serve another stream once the driver knows that the free has executed. This
// is what PyTorch does with backend:cudaMallocAsync and CuPy with MemoryAsyncPool.
#pragma once

#include <array>

#include "core/allocator.hpp"
#include "parts/lone_blocks.hpp"

namespace allocbench {

class CudaAsync final : public Allocator {
 public:
  static constexpr std::array<Option, 1> kOptions = {
      {{"release_threshold", OptionType::kBytes, "",
        "free bytes that the pool keeps when a stream is synchronized; default: all"}}};
  static constexpr StrategyInfo strategy = {
      .name = "cuda_async",
      .summary = "the stream-ordered memory pool of the CUDA driver (cudaMallocAsync)",
      .worst_case = "not documented by the driver",
      .reference = "Stream Ordered Memory Allocator, CUDA driver API",
      .options = kOptions,
      .keeps_free_blocks = false,
      .by_stream = true,
      .from_pool = true,
  };

  CudaAsync(Device& device, Options const& options)
      : Allocator(device),
        pool_(open_pool(options.given("release_threshold") ? options.bytes("release_threshold")
                                                           : ~Size{0})) {}
  StrategyInfo const& info() const override { return strategy; }

 private:
  Block do_allocate(Size requested, Stream stream) override {
    Address const address = acquire_from(pool_, requested, stream);
    return address == 0 ? Block{} : blocks_.insert(address, requested);
  }

  Block do_deallocate(Address address, Stream stream) override {
    Block const block = blocks_.erase(address);
    if (block.size != 0) release_to(pool_, address, stream);
    return block;
  }

  void do_trim() override { trim_pool(pool_); }
  Size do_largest_free() const override { return 0; }
  std::vector<Segment> do_snapshot() const override { return blocks_.segments(); }

  Device::Pool pool_;
  LoneBlocks blocks_;
};

}  // namespace allocbench

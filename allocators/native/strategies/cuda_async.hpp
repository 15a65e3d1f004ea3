// strategies/cuda_async.hpp: the CUDA driver's stream-ordered memory pool.
// SPDX-License-Identifier: Apache-2.0
//
// Each request calls cuMemAllocFromPoolAsync and each free calls cuMemFreeAsync on the block's
// stream, in a pool owned by this allocator. The driver decides where blocks are placed and which
// memory it keeps: it returns free memory above `release_threshold` when the program synchronizes a
// stream or an event. Another stream can get a block after the driver knows that its free has
// executed. PyTorch does the same with backend:cudaMallocAsync, and CuPy with MemoryAsyncPool.
#pragma once

#include <array>

#include "core/allocator.hpp"
#include "core/pool_device.hpp"
#include "parts/lone_blocks.hpp"

namespace allocbench {

class CudaAsync : public Allocator {
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
      .from_driver_pool = true,
  };

  // The device must have driver pools. Throws DeviceError if it cannot create one.
  CudaAsync(Device& device, Options const& options);
  StrategyInfo const& info() const override { return strategy; }

 protected:
  Block do_allocate(Size requested, Stream stream) override;
  Block do_deallocate(Address address, Stream stream) override;
  void do_trim() override;
  Size do_largest_free() const override { return 0; }
  std::vector<Segment> do_snapshot() const override { return blocks_.segments(); }

 private:
  void count_change();

  PoolDevice& driver_;
  PoolDevice::PoolHandle pool_;
  Size held_ = 0;  // bytes of the pool that are counted as reserved
  LoneBlocks blocks_;
};

}  // namespace allocbench

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
#include <utility>

#include "core/allocator.hpp"
#include "core/errors.hpp"
#include "parts/buffers.hpp"

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
  CudaAsync(Device& device, Options const& options)
      : Allocator(device),
        driver_(dynamic_cast<PoolDevice&>(device)),
        pool_(driver_.open_pool(
            options.given("release_threshold") ? options.bytes("release_threshold") : ~Size{0},
            this)) {
    if (pool_ != 0) return;
    throw_failure();
    throw DeviceError("the device failed to create a memory pool");
  }

  StrategyInfo const& info() const override { return strategy; }

 protected:
  [[gnu::flatten]] Block do_allocate(Size requested, Stream stream) override {
    Address address = driver_.allocate_from(pool_, requested, stream);
    Size const held = driver_.held_by(pool_);
    if (address != 0 && held > held_ && held - held_ > permitted()) {
      driver_.free_to(pool_, address, stream);
      driver_.trim_pool(pool_);
      address = 0;
    }
    count_change();
    return address == 0 ? Block{} : blocks_.insert({address, requested, requested});
  }

  [[gnu::flatten]] Block do_deallocate(Address address, Stream stream) override {
    Block const block = blocks_.erase(address);
    if (block.size == 0) return block;
    driver_.free_to(pool_, address, stream);
    count_change();
    return block;
  }

  void do_trim() override {
    driver_.trim_pool(pool_);
    count_change();
  }

  Size do_largest_free() const override { return 0; }
  std::vector<Segment> do_snapshot() const override { return blocks_.segments(); }

 private:
  // The pool changes in these calls, and when the device takes its free memory for something else.
  void count_change() {
    Size const before = std::exchange(held_, driver_.held_by(pool_));
    if (held_ > before) count_reserved(held_ - before);
    if (held_ < before) count_unreserved(before - held_);
  }

  PoolDevice& driver_;
  PoolDevice::PoolHandle pool_;
  Size held_ = 0;  // bytes of the pool that are counted as reserved
  LoneBlocks blocks_;
};

}  // namespace allocbench

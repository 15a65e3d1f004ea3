// strategies/naive.hpp: one device call per request.
// SPDX-License-Identifier: Apache-2.0
//
// This is what a program gets if it calls cudaMalloc and cudaFree directly: no waste, but the full
// cost of a device call for each request and each free. It is a lower bound for the memory of the
// other strategies, and its time is the reason why they exist.
#pragma once

#include "core/allocator.hpp"
#include "parts/buffers.hpp"

namespace allocbench {

class Naive : public Allocator {
 public:
  static constexpr StrategyInfo strategy = {
      .name = "naive",
      .summary = "one device call per request and per free",
      .worst_case = "none",
      .reference = "cudaMalloc and cudaFree, CUDA driver API",
      .keeps_free_blocks = false,
  };

  Naive(Device& device, Options const&) : Allocator(device) {}
  StrategyInfo const& info() const override { return strategy; }

 protected:
  [[gnu::flatten]] Block do_allocate(Size requested, Stream) override {
    Address const address = acquire(requested);
    return address == 0 ? Block{} : blocks_.insert({address, requested, requested});
  }

  [[gnu::flatten]] Block do_deallocate(Address address, Stream) override {
    Block const block = blocks_.erase(address);
    if (block.size != 0) release(address, block.size);
    return block;
  }

  void do_trim() override {}
  Size do_largest_free() const override { return 0; }
  std::vector<Segment> do_snapshot() const override { return blocks_.segments(); }

 private:
  LoneBlocks blocks_;
};

}  // namespace allocbench

// strategies/rmm_pool.hpp: RMM's pool, best fit with coalescing per stream.
// SPDX-License-Identifier: Apache-2.0
//
// Sizes are rounded up to 256 bytes. A request takes the smallest free block that is large enough,
// at the lowest address among equals, and returns what it does not need to the free list. Free
// blocks are kept by the stream that freed them, and coalesce only with neighbors in the same list;
// StreamLists describes how a stream takes blocks of another one. If no block is large enough, the
// pool grows: it doubles, or with a maximum size takes half of what is left. A refused size is
// halved until it is granted or as small as the request. RMM returns memory only when the pool is
// destroyed; here a trim returns the segments that are wholly free.
// A request takes O(log n) time for n free blocks, a free O(log n).
//
// Source: pool_memory_resource and coalescing_free_list in RMM 25.04.
#pragma once

#include <vector>

#include "core/allocator.hpp"
#include "strategies/rmm_pool/stream_pool.hpp"

namespace allocbench {

class RmmPool : public Allocator {
 public:
  static constexpr Size kAlignment = 256;
  static constexpr Option options[] = {
      {"initial_pool_size", OptionType::kBytes, "",
       "bytes requested from the device at the first request; default: half of the memory "
       "available then"},
      {"maximum_pool_size", OptionType::kBytes, "",
       "limit for the whole pool, in bytes; default: the capacity of the device, and the pool "
       "doubles each time that it grows"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "rmm_pool",
      .summary = "best fit with coalescing in a pool that starts with half of the device (RMM)",
      .worst_case = "free blocks that are too small, and free blocks of other streams",
      .reference = "pool_memory_resource of RMM",
      .options = options,
      .largest_request = [](Size capacity) { return round_down(capacity / 2, kAlignment); },
      .exemption = "the pool starts with half of the device, and blocks never span two segments",
  };

  RmmPool(Device& device, Options const& given);
  StrategyInfo const& info() const override { return strategy; }

 protected:
  Block do_allocate(Size requested, Stream stream) override;
  Block do_deallocate(Address address, Stream stream) override;
  void do_trim() override;
  std::vector<Segment> do_snapshot() const override { return pool_.snapshot(); }
  Size do_largest_free() const override { return pool_.largest_free(); }
  void do_check() const override { pool_.check(); }
  Counters do_counters() const override { return {{"search_steps", pool_.search_steps()}}; }

  Size do_room() const override {
    return maximum_ > 0 ? maximum_ - counted().reserved.current : ~Size{0};
  }

 private:
  void start();  // obtains the initial pool
  Index grow(Size size);

  bool default_initial_;
  Size initial_;
  Size maximum_;  // 0: no maximum
  bool started_ = false;
  StreamPool pool_;
};

}  // namespace allocbench

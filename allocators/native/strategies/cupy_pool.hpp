// strategies/cupy_pool.hpp: CuPy's default memory pool, best fit with coalescing per stream.
// SPDX-License-Identifier: Apache-2.0
//
// Sizes are rounded up to 512 bytes. A request takes the smallest free block of its stream that is
// large enough and returns what it does not need; free neighbors coalesce. A block belongs to the
// stream that first requested its segment, whichever stream frees it. If no block is large enough,
// exactly the rounded size is requested from the device. If the device refuses, all segments that
// are wholly free are returned, and the request is retried twice (CuPy collects garbage before the
// second time). With a memory limit, they are also returned before a request beyond it fails.
// A request and a free take O(log n) time for n free blocks.
//
// Among equally large blocks CuPy takes any one (it keeps them in a hash set); this strategy takes
// the one at the lowest address. Source: SingleDeviceMemoryPool in CuPy 13.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "core/allocator.hpp"
#include "core/errors.hpp"
#include "parts/address_map.hpp"
#include "parts/segment_blocks.hpp"

namespace allocbench {

class CupyPool : public Allocator {
 public:
  static constexpr Size kRounding = 512;
  static constexpr Option options[] = {
      {"memory_limit", OptionType::kBytes, "",
       "limit for the sum of all segments, in bytes (CUPY_GPU_MEMORY_LIMIT); default: none"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "cupy_pool",
      .summary = "best fit with coalescing per stream, in segments of the requested size (CuPy)",
      .worst_case = "free blocks that are too small, and free blocks of other streams",
      .reference = "MemoryPool of CuPy",
      .options = options,
      .largest_request = [](Size capacity) { return round_down(capacity, kRounding); },
      .exemption = "sizes are rounded up to 512 bytes",
      .by_stream = true,
  };

  CupyPool(Device& device, Options const& given)
      : Allocator(device),
        memory_limit_(given.given("memory_limit") ? given.bytes("memory_limit") : 0) {}
  StrategyInfo const& info() const override { return strategy; }

 protected:
  [[gnu::flatten]] Block do_allocate(Size requested, Stream stream) override {
    Size const size = round_up(requested, kRounding);
    BestFitBlocks& pool = pools_[stream];
    Index block = pool.find(size);
    if (block == kNone) block = grow(pool, size);
    if (block == kNone) return {};
    Block const taken = pool.allocate(block, size, requested);
    owner_.insert(taken.address, stream);
    return taken;
  }

  [[gnu::flatten]] Block do_deallocate(Address address, Stream) override {
    Index const stream = owner_.erase(address);
    return stream == kNone ? Block{} : pools_.at(stream).deallocate(address);
  }

  void do_trim() override { release_idle(); }

  Size do_room() const override {
    return memory_limit_ > 0 ? memory_limit_ - counted().reserved.current : ~Size{0};
  }

  // A new segment of exactly `size` bytes, as one free block; kNone if there is no memory for it.
  Index grow(BestFitBlocks& pool, Size size) {
    constexpr int kAttempts = 3;
    if (size > do_room()) {
      count_retry();
      release_idle();
      if (size > do_room()) return kNone;
    }
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      if (attempt == 1) count_retry();
      if (attempt > 0) release_idle();
      if (Address const segment = acquire(size); segment != 0) return pool.add(segment, size);
    }
    return kNone;
  }

  void release_idle() {
    if (!returns_memory()) return;
    for (auto& [stream, pool] : pools_)
      pool.release_idle([this](Address segment, Size size) { release(segment, size); });
  }

  std::vector<Segment> do_snapshot() const override {
    std::vector<Segment> all;
    for (auto const& [stream, pool] : pools_)
      std::ranges::move(pool.snapshot(), std::back_inserter(all));
    return all;
  }

  Size do_largest_free() const override {
    Size largest = 0;
    for (auto const& [stream, pool] : pools_) largest = std::max(largest, pool.largest_free());
    return largest;
  }

  void do_check() const override {
    for (auto const& [stream, pool] : pools_) pool.check();
    owner_.for_each([this](Address address, Index stream) {
      require(pools_.at(stream).allocated(address).size != 0, "a live block is in its pool");
    });
  }

  Counters do_counters() const override {
    std::uint64_t steps = owner_.search_steps();
    for (auto const& [stream, pool] : pools_) steps += pool.search_steps();
    return {{"search_steps", steps}};
  }

 private:
  Size memory_limit_;  // 0: none
  std::map<Stream, BestFitBlocks> pools_;
  AddressMap owner_;  // address of a live block -> its stream
};

}  // namespace allocbench

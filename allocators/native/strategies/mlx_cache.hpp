// strategies/mlx_cache.hpp: MLX's cache of Metal buffers.
// SPDX-License-Identifier: Apache-2.0
//
// Each block is a buffer of its own, and freed buffers stay in a cache. Sizes above a page of 16
// KiB are rounded up to whole pages. A request takes the smallest cached buffer that is large
// enough, and among equals the one that was freed first, if it is smaller than twice the size and
// than the size plus two pages. Otherwise it needs a new buffer; if all buffers then reach the
// memory limit, the cached ones that were freed first are returned, until the limit is met. If that
// is 90 % of the cache or more, all of it is returned. A request also returns what exceeds the
// limit of the cache. When the device refuses, the request fails. A request and a free take O(log
// n) time for n cached buffers.
//
// Metal limits how many buffers exist. Buffers below 256 bytes are parts of a heap of 1 MiB, which
// is not modeled. Source: metal/allocator.cpp and common/buffer_cache.h of MLX, August 2026.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/allocator.hpp"
#include "parts/buffers.hpp"

namespace allocbench {

class MlxCache : public Allocator {
 public:
  static constexpr Size kPage = 16 * kKiB;
  static constexpr Option options[] = {
      {"cache_limit", OptionType::kBytes, "",
       "cached bytes above which freed buffers are returned (mlx.core.set_cache_limit); default: "
       "none"},
      {"memory_limit", OptionType::kBytes, "",
       "bytes of all buffers from which a new one has cached ones returned, at most 95 % of the "
       "device (mlx.core.set_memory_limit); default: that"},
      {"buffers", OptionType::kNumber, "499000",
       "the most buffers that exist; at this number, the cache is returned"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "mlx_cache",
      .summary = "freed buffers serve requests of nearly their size until memory is short (MLX)",
      .worst_case = "inside a buffer: 32 KiB; outside: all freed buffers, up to the memory limit",
      .reference = "MetalAllocator and BufferCache of MLX",
      .options = options,
      .largest_request =
          [](Size capacity) { return capacity < kPage ? capacity : round_down(capacity, kPage); },
      .exemption = "sizes above 16 KiB are rounded up to pages of 16 KiB",
  };

  MlxCache(Device& device, Options const& given)
      : Allocator(device),
        cache_limit_(given.given("cache_limit") ? given.bytes("cache_limit") : ~Size{0}),
        memory_limit_(static_cast<Size>(0.95 * static_cast<double>(device.capacity()))) {
    if (given.given("memory_limit"))
      memory_limit_ = std::min(memory_limit_, given.bytes("memory_limit"));
    double const most = given.number("buffers");
    if (most < 1 || most > 1e9 || most != std::floor(most))
      given.reject("buffers", "must be an integer from 1 to 1000000000");
    most_buffers_ = static_cast<Size>(most);
  }
  StrategyInfo const& info() const override { return strategy; }

 protected:
  [[gnu::flatten]] Block do_allocate(Size requested, Stream) override {
    Size const size = requested > kPage ? round_up(requested, kPage) : requested;
    Size const fit = cache_.fit(size);
    bool const suits = fit != 0 && fit < std::min(2 * size, size + 2 * kPage);
    Block block = suits ? cache_.take(fit) : Block{create(size), size};
    if (block.address == 0) return {};
    block.requested = requested;
    if (cache_.bytes() > cache_limit_) release_oldest(cache_.bytes() - cache_limit_);
    return blocks_.insert(block);
  }

  [[gnu::flatten]] Block do_deallocate(Address address, Stream) override {
    Block const block = blocks_.erase(address);
    if (block.size == 0) return block;
    if (cache_.bytes() < cache_limit_)
      cache_.add(address, block.size);
    else
      release(address, block.size);
    return block;
  }

  void do_trim() override { release_oldest(cache_.bytes()); }
  Size do_largest_free() const override { return cache_.largest(); }

  std::vector<Segment> do_snapshot() const override {
    auto all = blocks_.segments();
    cache_.append_to(all);
    return all;
  }

 private:
  // A new buffer, or 0. At the limit of buffers MLX subtracts the memory limit even from less,
  // which wraps around, so all of the cache is returned.
  Address create(Size size) {
    Size const needed = counted().allocated.current + cache_.bytes() + size;
    if (needed >= memory_limit_ || buffers() >= most_buffers_)
      release_oldest(needed - memory_limit_);
    return buffers() >= most_buffers_ ? 0 : acquire(size);
  }

  Size buffers() const { return counted().allocations - counted().frees + cache_.count(); }

  void release_oldest(Size least) {
    bool const all = static_cast<double>(least) >= 0.9 * static_cast<double>(cache_.bytes());
    for (Size released = 0; !cache_.empty() && (all || released < least);) {
      Block const buffer = cache_.take_oldest();
      release(buffer.address, buffer.size);
      released += buffer.size;
    }
  }

  Size cache_limit_, memory_limit_, most_buffers_;
  LoneBlocks blocks_;
  FreedBuffers cache_;
};

}  // namespace allocbench

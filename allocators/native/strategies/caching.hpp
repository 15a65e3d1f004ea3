// strategies/caching.hpp: PyTorch's CUDACachingAllocator.
// SPDX-License-Identifier: Apache-2.0
//
// Sizes are rounded up to 512 bytes (or to steps between powers of two). Each stream has a pool of
// small blocks, up to 1 MiB, in segments of 2 MiB, and a pool of large ones, in segments of 20 MiB
// or, from 10 MiB on, of their own size rounded up to 2 MiB. The best fit is taken from the pool,
// its front handed out when the rest is worth keeping: 512 bytes in a small pool, more than 1 MiB
// in a large one. A freed block coalesces with its free neighbours at once. Free segments stay
// cached until the device refuses a new one: then oversize blocks go back to it, then all of them.
// An expandable segment is a range of addresses, larger than the device, that is mapped page by
// page where it is needed and unmapped where it is free.
// A request and a free take O(log n) steps in the free blocks of the pool; with expandable
// segments a request may also pass free blocks and unmapped ranges that cannot grow enough.
//
// A block that is freed on another stream than its own counts as used there (record_stream): it is
// free for reuse only after the next step, a trim or a refusal of the device, where a program waits
// for all its streams.
//
// A private pool, of captured graphs or a MemPool, is a stream of its own: its segments stay until
// the pool is released, whatever the rest of the program asks for.
//
// The rules are those of PyTorch 2.13, block for block.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "core/allocator.hpp"
#include "parts/pooled_blocks.hpp"
#include "strategies/caching/settings.hpp"

namespace allocbench {

class Caching final : public Allocator {
 public:
  static constexpr StrategyInfo strategy = {
      .name = "caching",
      .summary = "best fit with coalescing, in cached segments per stream and size (PyTorch)",
      .worst_case = "inside a large block: 1 MiB; outside: free blocks of the wrong size or stream",
      .reference = "CUDACachingAllocator of PyTorch",
      .options = CachingSettings::options,
      .largest_request =
          [](Size capacity) {
            if (capacity < CachingSettings::kSmallSegment) return Size{0};
            if (capacity < CachingSettings::kLargeSegment) return CachingSettings::kSmall;
            return round_down(capacity, CachingSettings::kSegmentRounding);
          },
      .exemption =
          "a segment has 2 MiB for requests up to 1 MiB, 20 MiB for those below 10 MiB, "
          "else a multiple of 2 MiB",
      .by_stream = true,
  };

  // Throws SpecError for a setting that cannot be read or is out of range.
  Caching(Device& device, Options const& given)
      : Allocator(device),
        settings_(CachingSettings::read(given, device.capacity())),
        blocks_(settings_.ties == CachingSettings::Ties::kBlock) {}
  StrategyInfo const& info() const override { return strategy; }

 private:
  using Pool = PooledBlocks::Pool;

  Block do_allocate(Size requested, Stream stream) override;
  Block do_deallocate(Address address, Stream stream) override {
    return blocks_.deallocate(address, stream).block;
  }
  void do_trim() override;
  void do_keep_pools(std::vector<Stream> const& pools) override {
    kept_.insert(pools.begin(), pools.end());
  }
  void do_release_pool(Stream pool) override;
  bool do_adopt(std::vector<HeldSegment> const& layout) override;
  void do_step() override { blocks_.streams_done(); }
  std::vector<Segment> do_snapshot() const override { return blocks_.snapshot(); }
  Size do_largest_free() const override { return blocks_.largest_free(); }
  void do_check() const override;
  Counters do_counters() const override { return {{"search_steps", blocks_.search_steps()}}; }

  Index find(Pool& pool, Size wanted);
  Index roomier(Pool const& pool, Index fit) const;
  Block take(Index block, Size wanted, Size requested);

  Index obtain(Pool& pool, Size wanted);
  Index obtain_after_release(Pool& pool, Size wanted);
  std::uint64_t next_rank();
  bool release_oversize(Pool& pool, Size wanted);
  void release_free(Pool& pool);
  void release_segment(Index block);
  void collect();

  // Expandable segments
  Index extend(Pool& pool, Size wanted);
  Index find_space(Pool& pool, Size wanted);
  Index reserve_space(Pool& pool);
  bool map_front(Index block, Size wanted);
  void unmap_pages(Index block);

  // Segments held before
  Size reservation_size(Size page) const;
  bool adopt_segment(HeldSegment const& held);
  bool adopt_reservation(std::vector<HeldSegment> const& ranges);

  Size reserved() const { return counted().reserved.current; }

  CachingSettings settings_;
  PooledBlocks blocks_;
  std::set<Stream> kept_;  // private pools whose segments stay
};

}  // namespace allocbench

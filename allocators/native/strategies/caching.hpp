// strategies/caching.hpp: PyTorch's CUDACachingAllocator.
// SPDX-License-Identifier: Apache-2.0
//
// Sizes are rounded up to 512 bytes (or to steps between powers of two). Each stream has a pool of
// small blocks, up to 1 MiB, in segments of 2 MiB, and a pool of large blocks. A large block is in
// a segment of 20 MiB or, from 10 MiB on, in a segment of its size rounded up to 2 MiB. A request
// takes the best fit of its pool. The block is split if the rest is worth keeping: at least 512
// bytes in a small pool, more than 1 MiB in a large one. A freed block coalesces with its free
// neighbors at once. Free segments stay cached until the device refuses a new one. Then the
// oversize blocks are returned to the device and, if that is not enough, all free segments. An
// expandable segment is an address range larger than the device. Its pages are mapped when a block
// needs them and unmapped when free memory is returned.
//
// A request and a free take O(log n) time for n free blocks in the pool. With expandable segments
// a request may also visit free blocks and unmapped ranges that cannot grow enough.
//
// A block that is freed on a stream other than its own is in use there (record_stream). It can be
// reused only after a step, a trim or a refusal by the device, because a program then waits for all
// of its streams.
//
// A private pool, which belongs to captured graphs or to a MemPool, has blocks of its own for each
// stream. It keeps its segments until the pool is released and memory is returned, even when the
// device refuses a request. During a capture, no other memory is returned either, and a block that
// was used on another stream becomes free when the capture has ended.
//
// Settings can change at any time. Blocks stay as they are: those in expandable segments serve no
// request while expandable segments are off, and those larger than a new max_split_size_mb may be
// parts of a segment. PyTorch returns even such a part to the device when that refuses a request,
// which is an error or frees memory in use, so here the request fails.
//
// Source: c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.13 to 2.15, reproduced block for block.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/abilities.hpp"
#include "parts/pooled_blocks.hpp"
#include "pytorch/settings.hpp"

namespace allocbench {

class Caching final : public Allocator, public ServesPools, public LiveSettings, public TakesOver {
 public:
  static constexpr StrategyInfo strategy = {
      .name = "caching",
      .summary = "best fit with coalescing, in cached segments per stream and size (PyTorch)",
      .worst_case = "inside a large block: 1 MiB; outside: free blocks of the wrong size or stream",
      .reference = "CUDACachingAllocator of PyTorch",
      .options = PytorchSettings::options,
      .largest_request =
          [](Size capacity) {
            if (capacity < PytorchSettings::kSmallSegment) return Size{0};
            if (capacity < PytorchSettings::kLargeSegment) return PytorchSettings::kSmall;
            return round_down(capacity, PytorchSettings::kSegmentRounding);
          },
      .exemption =
          "a segment has 2 MiB for requests up to 1 MiB, 20 MiB for requests below 10 MiB, "
          "and otherwise a multiple of 2 MiB",
      .by_stream = true,
      .by_pool = true,
  };

  // Throws SpecError for a setting that cannot be read or is out of range.
  Caching(Device& device, Options const& given)
      : Allocator(device),
        settings_(PytorchSettings::read(given, [&] { return device.capacity(); })),
        blocks_(settings_.rules.ties == PytorchRules::Ties::kBlock) {}
  StrategyInfo const& info() const override { return strategy; }

  PrivatePools const& pools() const override { return *pools_; }
  void share_pools(std::shared_ptr<PrivatePools> const& pools) override { pools_ = pools; }
  void describe_pools(std::vector<PoolTraits> const& traits) override {
    std::scoped_lock const guard(lock());
    pools_->describe(traits);
  }
  void pool_event(Op op, PoolId pool) override {
    std::scoped_lock const guard(lock());
    pools_->apply(op, pool);
  }
  void trim_pool(PoolId pool) override;
  bool adopt(std::vector<HeldSegment> const& layout) override;
  void change_settings(std::string const& conf) override {
    std::scoped_lock const guard(lock());
    settings_ = settings_.changed(conf, [this] { return device().capacity(); });
    changed_ = true;
  }
  void change_memory_fraction(double fraction) override {
    std::scoped_lock const guard(lock());
    settings_.limit_to(fraction, device().capacity());
    changed_ = true;
  }

 private:
  using BlockPool = PooledBlocks::BlockPool;

  Block do_allocate(Size requested, Stream stream) override;
  Block do_deallocate(Address address, Stream stream) override {
    return blocks_.deallocate(address, stream, capture_defers()).block;
  }
  void do_trim() override;
  void do_step() override { blocks_.streams_done(); }
  std::vector<Segment> do_snapshot() const override { return blocks_.snapshot(); }
  Size do_largest_free() const override { return blocks_.largest_free(); }
  void do_check() const override;
  Counters do_counters() const override { return {{"search_steps", blocks_.search_steps()}}; }

  Index find(BlockPool& pool, Size wanted);
  Index roomier(BlockPool const& pool, Index fit) const;
  Block take(Index block, Size wanted, Size requested);

  Index obtain_or_lend(BlockPool& pool, Size wanted, Stream stream);
  Index obtain(BlockPool& pool, Size wanted);
  Index obtain_after_release(BlockPool& pool, Size wanted, Stream stream);
  std::uint64_t next_rank();
  enum class Released { kTooLittle, kEnough, kPartOfSegment };
  Released release_oversize(BlockPool& pool, Size wanted);
  void release_free(std::vector<BlockPool*> const& pools);
  bool expandable(Index block) const { return blocks_.facts(block).reservation != nullptr; }
  void release_segment(Index block);
  void collect();

  // Private pools
  // In versions that do not mark captures, a program that has entered a MemPool counts as
  // capturing.
  bool capture_defers() const {
    return settings_.rules.marks_captures ? pools_->capturing() : pools_->entered();
  }
  // In the others, only requests from a stream that is being captured are restricted.
  bool during_capture(Stream stream) const {
    if (!settings_.rules.marks_captures) return pools_->entered();
    return pools_->capturing() && pools_->capturing(pool_of(stream));
  }
  Index lend(Stream stream, Size wanted);

  // Expandable segments
  Index extend(BlockPool& pool, Size wanted);
  Index find_extendable(BlockPool& pool, Size wanted);
  Index open_reservation(BlockPool& pool);
  void ask_addresses(Index block, Size bytes) const;
  bool map_front(Index block, Size wanted);
  void unmap_pages(Index block);

  // Segments that the program held before its trace began
  Size reservation_size(bool small) const {
    return settings_.reservation(small, device().stated_capacity());
  }
  bool adopt_all(std::vector<HeldSegment> const& layout);
  bool adopt_segment(HeldSegment const& held);
  bool adopt_reservation(std::vector<HeldSegment> const& ranges);

  Size reserved() const { return counted().reserved.current; }

  PytorchSettings settings_;
  PooledBlocks blocks_;
  std::shared_ptr<PrivatePools> pools_ = std::make_shared<PrivatePools>();
  bool changed_ = false;  // the settings, since the allocator was made
};

}  // namespace allocbench

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

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
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
  void trim_pool(PoolId pool) override {
    trim_by([&] {
      if (!pools_->released(pool)) return;
      blocks_.free_deferred();
      blocks_.free_waiting_of(pool);
      auto& all = blocks_.pools();
      for (auto one = all.lower_bound(in_pool(0, pool));
           one != all.end() && pool_of(one->first) == pool; ++one)
        release_free({&one->second.small, &one->second.large});
    });
  }

  bool adopt(std::vector<HeldSegment> const& layout) override {
    return take_over(layout, [&] { return adopt_all(layout); });
  }
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

  Block do_allocate(Size requested, Stream stream) override {
    if (!during_capture(stream)) {
      blocks_.free_deferred();
      blocks_.free_waiting();
    }
    Size const wanted = settings_.rounded(requested);
    PooledBlocks::StreamPools& pools = blocks_.of(stream);
    BlockPool& pool = wanted <= PytorchSettings::kSmall ? pools.small : pools.large;
    Index block = find(pool, wanted);
    if (block == kNone) block = obtain_or_lend(pool, wanted, stream);
    return block == kNone ? Block{} : take(block, wanted, requested);
  }

  Block do_deallocate(Address address, Stream stream) override {
    return blocks_.deallocate(address, stream, capture_defers()).block;
  }
  void do_trim() override {
    blocks_.streams_done();
    blocks_.free_deferred();
    blocks_.free_waiting();
    std::vector<BlockPool*> large, small;
    for (auto* const pools : blocks_.changed(false, [](auto const*) { return true; })) {
      large.push_back(&pools->large);
      small.push_back(&pools->small);
    }
    release_free(large);
    release_free(small);
    if (!pools_->any_released()) return;
    auto const released = [&](auto const* one) {
      return pools_->released(pool_of(one->small.stream));
    };
    for (auto* const pools : blocks_.changed(true, released))
      release_free({&pools->small, &pools->large});
  }

  void do_step() override { blocks_.streams_done(); }
  std::vector<Segment> do_snapshot() const override { return blocks_.snapshot(); }
  Size do_largest_free() const override { return blocks_.largest_free(); }
  void do_check() const override {
    blocks_.check();
    require(!settings_.limit || settings_.expandable || changed_ || reserved() <= *settings_.limit,
            "the segments together stay below the limit");
  }
  Counters do_counters() const override { return {{"search_steps", blocks_.search_steps()}}; }

  // Takes the best fit out of the pool, unless it is an oversize block and the request is below
  // that size or would leave too much of it unused; no other block is tried.
  Index find(BlockPool& pool, Size wanted) {
    if (settings_.collects() && !pool.small && pool_of(pool.stream) == 0) blocks_.tick();
    Index fit = pool.free.fit(wanted);
    if (settings_.expandable && fit != kNone) fit = roomier(pool, fit);
    while (!settings_.expandable && fit != kNone && expandable(fit)) fit = pool.free.next(fit);
    if (fit == kNone) return kNone;
    Size const size = blocks_.size(fit);
    bool const suits = wanted < settings_.max_split
                           ? size < settings_.max_split
                           : size < wanted + settings_.max_non_split_rounding;
    if (!suits) return kNone;
    pool.free.remove(fit);
    return fit;
  }

  // Moves on from the best fit, while it is in an expandable segment, as long as the next larger
  // block can grow less. A block counts as large as it can grow into the unmapped addresses after
  // it.
  [[gnu::noinline]] Index roomier(BlockPool const& pool, Index fit) const {
    auto const after = [&](Index block) {  // the addresses into which a block can grow, or kNone
      Index const next = blocks_[block].next;
      return next != kNone && !blocks_.facts(next).mapped ? next : kNone;
    };
    auto const room = [&](Index block) {
      Index const next = after(block);
      return blocks_.size(block) + (next == kNone ? 0 : blocks_.size(next));
    };
    auto const is_last = [&](Index block) {
      return after(block) != kNone && blocks_[after(block)].next == kNone;
    };
    for (Index next = kNone; expandable(fit); fit = next) {
      next = pool.free.next(fit);
      if (next == kNone) break;
      if (is_last(fit) && is_last(next))
        device().capacity();
      else if (is_last(fit))
        ask_addresses(fit, room(next) + 1);
      else if (is_last(next))
        ask_addresses(next, room(fit));
      if (room(next) >= room(fit)) break;
    }
    return fit;
  }

  // Allocates the front of a block that is in no pool, or all of it if the rest is too small.
  Block take(Index block, Size wanted, Size requested) {
    BlockPool const& pool = *blocks_.facts(block).pool;
    Size const rest = blocks_.size(block) - wanted;
    bool const any_rest = settings_.expandable || pool.small;
    bool const worth = any_rest ? rest >= PytorchSettings::kRounding
                                : wanted < settings_.max_split && rest > PytorchSettings::kSmall;
    bool const split =
        worth && !(settings_.rules.knows_no_split && pools_->traits(pool_of(pool.stream)).no_split);
    if (!split) return blocks_.allocate(block, requested);
    Index const front = blocks_.split_front(block, wanted);
    blocks_.insert(block);
    return blocks_.allocate(front, requested);
  }

  // Not inlined, so that a request with a fit saves no registers for it.
  [[gnu::noinline]] Index obtain_or_lend(BlockPool& pool, Size wanted, Stream stream) {
    if (settings_.collects() && returns_memory()) collect();
    if (settings_.throws_early && !settings_.limit &&
        !device().has(reserved() + settings_.segment(wanted)))
      return kNone;
    Index block = obtain(pool, wanted);
    if (block == kNone && settings_.rules.lends_first) block = lend(stream, wanted);
    if (block == kNone) block = obtain_after_release(pool, wanted, stream);
    if (block == kNone && !settings_.rules.lends_first) block = lend(stream, wanted);
    return block;
  }

  // A block of memory that is new to the pool, or kNone. The device is not called if the memory
  // would exceed the limit.
  Index obtain(BlockPool& pool, Size wanted) {
    Size const segment = settings_.segment(wanted);
    if (settings_.limit && reserved() + segment > *settings_.limit) return kNone;
    if (settings_.expandable) return extend(pool, wanted);
    Address const address = acquire(segment);
    return address == 0 ? kNone : blocks_.create(address, segment, {.pool = &pool}, next_rank());
  }

  Index obtain_after_release(BlockPool& pool, Size wanted, Stream stream) {
    if (!returns_memory()) return kNone;
    Released const released = release_oversize(pool, wanted);
    if (released == Released::kPartOfSegment) return kNone;
    if (released == Released::kEnough)
      if (Index const block = obtain(pool, wanted); block != kNone) return block;
    if (during_capture(stream)) return kNone;
    do_trim();
    count_retry();
    return obtain(pool, wanted);
  }

  // The rank of a new segment; equal ranks let the address decide.
  std::uint64_t next_rank() {
    return settings_.rules.ties == PytorchRules::Ties::kAddress ? 0 : blocks_.next_rank();
  }
  enum class Released { kTooLittle, kEnough, kPartOfSegment };
  // Returns the best fit among the oversize blocks to the device or, if none is large enough, the
  // largest ones. kEnough if the returned bytes suffice for the request; kPartOfSegment, and
  // nothing more is returned, at a block that is only part of its segment.
  Released release_oversize(BlockPool& pool, Size wanted) {
    if (settings_.max_split == PytorchSettings::kNoLimit) return Released::kTooLittle;
    Size const needed = std::max(wanted, settings_.max_split);
    Index const fit = pool.free.fit(needed);
    bool const single = fit != kNone && !expandable(fit);
    Index block = single ? fit : fit == kNone ? pool.free.last() : pool.free.previous(fit);
    Size released = 0;
    while (released < needed && block != kNone && blocks_.size(block) >= settings_.max_split) {
      Index const smaller = pool.free.previous(block);
      if (!expandable(block)) {
        if (!blocks_.whole(block)) return Released::kPartOfSegment;
        released += blocks_.size(block);
        release_segment(block);
      }
      block = smaller;
    }
    return released >= needed ? Released::kEnough : Released::kTooLittle;
  }

  // Returns the free segments of these pools to the device, then the free pages of expandable ones.
  void release_free(std::vector<BlockPool*> const& pools) {
    std::vector<Index> expandable_blocks;
    for (BlockPool* const pool : pools)
      for (Index block = pool->free.first(), next; block != kNone; block = next) {
        next = pool->free.next(block);
        if (expandable(block))
          expandable_blocks.push_back(block);
        else if (blocks_.whole(block))
          release_segment(block);
      }
    for (Index const block : expandable_blocks) unmap_pages(block);
  }

  bool expandable(Index block) const { return blocks_.facts(block).reservation != nullptr; }
  void release_segment(Index block) {
    blocks_.remove(block);
    release(blocks_[block].block.address, blocks_.size(block));
    blocks_.drop(block);
  }
  // Returns free segments of the large pools until reserved bytes are within the threshold. Each
  // round returns the segments that have been free for at least the average time.
  void collect() {
    auto const threshold =
        static_cast<Size>(settings_.collection_threshold * static_cast<double>(*settings_.limit));
    if (reserved() <= threshold) return;
    Size const target = reserved() - threshold;
    std::vector<Index> idle;
    double ages = 0;
    auto const age = [&](Index block) { return static_cast<double>(blocks_.age(block)); };
    for (auto const* const pools : blocks_.filled()) {
      if (pool_of(pools->small.stream) != 0) continue;
      FreeIndex const& free = pools->large.free;
      for (Index block = free.first(); block != kNone; block = free.next(block))
        if (blocks_.whole(block) && !expandable(block)) {
          idle.push_back(block);
          ages += age(block);
        }
    }
    Size released = 0;
    while (released < target && !idle.empty()) {
      double const average = ages / static_cast<double>(idle.size());
      auto const old =
          std::ranges::stable_partition(idle, [&](Index block) { return age(block) < average; });
      for (Index const block : old) {
        released += blocks_.size(block);
        ages -= age(block);
        release_segment(block);
      }
      idle.erase(old.begin(), old.end());
    }
  }

  // -- private pools

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
  // A free block of a MemPool made with use_on_oom, for a request outside of private pools.
  Index lend(Stream stream, Size wanted) {
    if (pool_of(stream) != 0 || (settings_.expandable && !settings_.rules.lends_expandable))
      return kNone;
    for (PoolId const pool : pools_->lenders()) {
      if (!pools_->in_use(pool)) continue;
      PooledBlocks::StreamPools& pools = blocks_.of(in_pool(stream, pool));
      Index const block =
          find(wanted <= PytorchSettings::kSmall ? pools.small : pools.large, wanted);
      if (block != kNone) return block;
    }
    return kNone;
  }

  // -- expandable segments

  // Takes a free block of `wanted` bytes or more out of its pool, after mapping the pages that it
  // lacks. kNone if the device refuses; pages mapped until then stay mapped and free.
  Index extend(BlockPool& pool, Size wanted) {
    Index block = find_extendable(pool, wanted);
    if (block == kNone) return kNone;
    if (!blocks_.facts(block).mapped && !map_front(block, std::min(blocks_.size(block), wanted)))
      return kNone;
    while (blocks_.size(block) < wanted) {
      Index const next = blocks_[block].next;  // unmapped: free neighbors have coalesced
      if (!map_front(next, std::min(wanted - blocks_.size(block), blocks_.size(next))))
        return kNone;
      block = next;  // the mapped pages have coalesced with the block before them
    }
    blocks_.remove(block);
    return block;
  }

  // The lowest free block, mapped or not, that begins a free range of `wanted` bytes which is
  // partly unmapped; if no such range exists, the block of a new expandable segment. kNone if that
  // would be too small.
  Index find_extendable(BlockPool& pool, Size wanted) {
    auto const is_free = [&](Index block) { return block != kNone && !blocks_.in_use(block); };
    for (auto const& [address, unmapped] : pool.unmapped) {
      Index const previous = blocks_[unmapped].previous;
      Index const begin = is_free(previous) ? previous : unmapped;
      Size room = 0;
      Index last = begin;
      for (Index block = begin; room < wanted && is_free(block); block = blocks_[block].next) {
        room += blocks_.size(block);
        last = block;
      }
      if (blocks_[last].next == kNone) ask_addresses(begin, wanted);
      if (room >= wanted) return begin;
    }
    bool const fits = !settings_.reserve || wanted <= reservation_size(pool.small);
    return fits ? open_reservation(pool) : kNone;
  }

  Index open_reservation(BlockPool& pool) {
    Size const size = reservation_size(pool.small);
    Address const address = reserve(size);
    if (address == 0) return kNone;
    return blocks_.open({address, size, settings_.page(pool.small)}, pool, next_rank());
  }
  // Tells the device that a decision depends on whether there are this many addresses from a block
  // to the end of its reservation, whose size follows from the capacity.
  void ask_addresses(Index block, Size bytes) const {
    auto const& [start, size, page] = *blocks_.facts(block).reservation;
    Size const addresses = blocks_[block].block.address - start + bytes;
    device().has(PytorchSettings::capacity_with(addresses, page));
  }
  // Maps the pages that hold the first `wanted` bytes of an unmapped block. They become a free
  // block, which coalesces. False if the device refuses.
  bool map_front(Index block, Size wanted) {
    Size const page = blocks_.facts(block).reservation->page;
    Size const size = round_up(wanted, page);
    Address const address = blocks_[block].block.address;
    if (!map(address, size, page)) return false;
    blocks_.remap(block, {address, address + size});
    return true;
  }

  // Unmaps the pages that lie wholly in a free block, and returns the reservation when none of its
  // pages is mapped any more.
  void unmap_pages(Index block) {
    auto const pages = blocks_.pages(block);
    if (pages.size() == 0) return;
    unmap(pages.begin, pages.size(), blocks_.facts(block).reservation->page);
    Index const unmapped = blocks_.remap(block, pages);
    if (blocks_.whole(unmapped)) unreserve(blocks_.close(unmapped));
  }

  // -- segments that the program held before its trace began

  Size reservation_size(bool small) const {
    return settings_.reservation(small, device().stated_capacity());
  }
  bool adopt_all(std::vector<HeldSegment> const& layout) {
    if (std::ranges::any_of(layout, &HeldSegment::of_bfc)) return false;
    std::map<Address, std::vector<HeldSegment>> reservations;
    for (HeldSegment const& held : layout)
      if (held.reservation != 0) reservations[held.reservation].push_back(held);
    auto const consistent = [&](HeldSegment const& held) {
      Size const page = settings_.page(held.small);
      HeldSegment const& first = reservations.at(held.reservation).front();
      return held.stream == first.stream && held.small == first.small &&
             (held.segment.address - held.reservation) % page == 0 && held.segment.size % page == 0;
    };
    for (auto const& [address, ranges] : reservations)
      if (!std::ranges::all_of(ranges, consistent)) return false;

    std::vector<HeldSegment> by_rank = layout;
    std::ranges::stable_sort(by_rank, {}, &HeldSegment::rank);
    bool adopted = true;
    for (HeldSegment const& held : by_rank) {
      if (held.reservation == 0)
        adopted = adopted && adopt_segment(held);
      else if (auto const ranges = reservations.extract(held.reservation); !ranges.empty())
        adopted = adopted && adopt_reservation(ranges.mapped());
    }
    return adopted;
  }

  bool adopt_segment(HeldSegment const& held) {
    auto const& [address, size, blocks] = held.segment;
    if (!device().adopt(address, size, this)) return false;
    count_reserved(size);
    PooledBlocks::StreamPools& pools = blocks_.of(held.stream);
    Index const block = blocks_.create(
        address, size, {.pool = held.small ? &pools.small : &pools.large}, next_rank());
    blocks_.insert(block);
    blocks_.carve(block, blocks);
    return true;
  }

  // `ranges` are the mapped ranges of one reservation, in address order.
  bool adopt_reservation(std::vector<HeldSegment> const& ranges) {
    HeldSegment const& first = ranges.front();
    Size const page = settings_.page(first.small);
    Segment const& last = ranges.back().segment;
    Size const end = last.address + last.size - first.reservation;
    Size const size = std::max(reservation_size(first.small), end);
    device().has(PytorchSettings::capacity_with(end, page));
    std::vector<Segment> mapped;
    for (HeldSegment const& range : ranges) mapped.push_back(range.segment);
    if (!device().adopt_pages(first.reservation, size, page, mapped, this)) return false;
    for (Segment const& range : mapped) count_reserved(range.size);
    PooledBlocks::StreamPools& pools = blocks_.of(first.stream);
    Index unmapped = blocks_.open({first.reservation, size, page},
                                  first.small ? pools.small : pools.large, next_rank());
    for (Segment const& range : mapped) {
      Index const block = blocks_.remap(unmapped, {range.address, range.address + range.size});
      unmapped = blocks_[block].next;
      blocks_.carve(block, range.blocks);
    }
    return true;
  }

  Size reserved() const { return counted().reserved.current; }

  PytorchSettings settings_;
  PooledBlocks blocks_;
  std::shared_ptr<PrivatePools> pools_ = std::make_shared<PrivatePools>();
  bool changed_ = false;  // the settings, since the allocator was made
};

}  // namespace allocbench

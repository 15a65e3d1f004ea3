// wrappers/binning.hpp: pools of fixed block sizes in front of the inner allocator.
// SPDX-License-Identifier: Apache-2.0
//
// A request takes a block of the smallest bin that is large enough; requests that are larger than
// the largest bin go to the inner allocator. The bins are powers of two. Each one gets blocks from
// the inner allocator, 128 at a time: first all bins, when the first request arrives (RMM: when the
// resource is created), later a bin that has no free block. Bins never split or coalesce blocks and
// return none before a trim. Blocks are reused in the order in which they became free; StreamLists
// describes how a stream takes blocks of another one. Each private pool has bins of its own, whose
// blocks come from that pool of the inner allocator.
//
// Source: binning_memory_resource and fixed_size_memory_resource in RMM 25.04.
#pragma once

#include <algorithm>
#include <bit>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "parts/address_map.hpp"
#include "parts/stream_lists.hpp"
#include "wrappers/wrapper.hpp"

namespace allocbench {

class Binning final : public Wrapper {
 public:
  static constexpr Option options[] = {
      {"smallest", OptionType::kBytes, "256KiB",
       "block size of the smallest bin, a power of two, at least 256 bytes"},
      {"largest", OptionType::kBytes, "4MiB",
       "block size of the largest bin, a power of two, at most 1 GiB"},
  };
  static constexpr WrapperInfo wrapper = {
      .name = "binning",
      .summary = "fixed-size pools for small requests (binning_memory_resource of RMM)",
      .options = options,
  };

  Binning(Device& device, Options const& given, MakeInner const& make_inner)
      : Wrapper(device, make_inner),
        smallest_(given.bytes("smallest")),
        largest_(given.bytes("largest")) {
    if (!std::has_single_bit(smallest_) || smallest_ < kSmallestBlock || smallest_ > kLargestBlock)
      given.reject("smallest", "must be a power of two from 256 bytes to 1 GiB");
    if (!std::has_single_bit(largest_) || largest_ < smallest_ || largest_ > kLargestBlock)
      given.reject("largest", "must be a power of two from `smallest` to 1 GiB");
  }

 private:
  static constexpr Size kBlocksPerChunk = 128;
  static constexpr Size kSmallestBlock = 256;
  static constexpr Size kLargestBlock = kGiB;

  // The free blocks of one stream in one bin, first in, first out.
  struct Queue {
    std::deque<Index> blocks = {};
    Index fit(Size) const { return blocks.empty() ? kNone : blocks.front(); }
  };
  struct Bin {
    explicit Bin(Size of) : size(of) {}
    Size size;
    StreamLists<Queue> queues;
  };
  // Blocks that the inner allocator gave as one, and the bytes that it gave beyond them.
  struct Chunk {
    std::vector<Index> blocks;
    Size rest;
  };
  // The bins of a private pool, or of the memory outside of them.
  struct Bins {
    explicit Bins(PoolId of, Size smallest, Size largest) : pool(of) {
      for (Size size = smallest; size <= largest; size *= 2) all.emplace_back(size);
    }

    // null if no bin is large enough
    Bin* bin_for(Size size) {
      auto const bin = std::ranges::find_if(all, [&](Bin const& b) { return b.size >= size; });
      return bin == all.end() ? nullptr : &*bin;
    }

    PoolId pool;
    std::deque<Bin> all;  // in order of size
    bool started = false;
    AddressMap block_at;  // address -> node
    std::map<Address, Chunk> chunks;
    Size largest_free = 0;  // when it was last looked up
    bool changed = false;   // since then, so it is in `changed_`
  };

  Block do_allocate(Size requested, Stream stream) override {
    Bins& bins = bins_of(stream);
    if (!bins.started && device().has(requested)) {
      bins.started = true;
      Stream const first = in_pool(0, bins.pool);
      for (Bin& bin : bins.all) fill(bins, bin, bin.queues.of(first), first);
    }
    Bin* const bin = bins.bin_for(requested);
    if (bin == nullptr) return Wrapper::do_allocate(requested, stream);
    Queue& own = bin->queues.of(stream);
    auto const absorb = [&](Queue& other) {
      own.blocks.insert(own.blocks.end(), other.blocks.begin(), other.blocks.end());
      other.blocks.clear();
    };
    auto [queue, index] = bin->queues.choose(bin->size, own, absorb);
    if (index == kNone) {
      fill(bins, *bin, own, stream);
      index = own.fit(bin->size);
    }
    if (index == kNone) return {};
    queue.blocks.pop_front();
    nodes_[index].block.requested = requested;
    return nodes_[index].block;
  }

  Block do_deallocate(Address address, Stream stream) override {
    Bins& bins = bins_of(stream);
    Index const index = bins.block_at.find(address);
    if (index == kNone)
      return bins.chunks.contains(address) ? Block{} : Wrapper::do_deallocate(address, stream);
    Block const freed = nodes_[index].block;
    if (!freed.allocated()) return {};
    nodes_[index].block.requested = 0;
    bins.bin_for(freed.size)->queues.of(stream).blocks.push_back(index);
    return freed;
  }

  void do_trim() override {
    for (auto& [pool, bins] : bins_)
      if (pool == 0 || pools().released(pool)) give_back(bins);
    Wrapper::do_trim();
  }

  void do_trim_pool(PoolId pool) override {
    auto const bins = bins_.find(pool);
    if (bins != bins_.end() && pools().released(pool)) give_back(bins->second);
    Wrapper::do_trim_pool(pool);
  }

  std::vector<Segment> do_snapshot() const override {
    auto segments = Wrapper::do_snapshot();
    std::map<Address, Chunk const*> chunks;
    for (auto const& [pool, bins] : bins_)
      for (auto const& [address, chunk] : bins.chunks) chunks.emplace(address, &chunk);
    for (Segment& segment : segments) {
      std::vector<Block> shown;
      for (Block const& block : segment.blocks) {
        auto const found = block.allocated() ? chunks.find(block.address) : chunks.end();
        if (found == chunks.end()) {
          shown.push_back(block);
          continue;
        }
        auto const& [blocks, rest] = *found->second;
        for (Index const index : blocks) shown.push_back(nodes_[index].block);
        if (rest > 0) shown.push_back({block.end() - rest, rest, 0});
      }
      segment.blocks = std::move(shown);
    }
    return segments;
  }

  Size do_largest_free() const override {
    Size largest = Wrapper::do_largest_free();
    for (Bins* const bins : std::exchange(changed_, {})) {
      if (auto const old = free_.find(bins->largest_free); old != free_.end()) free_.erase(old);
      free_.insert(bins->largest_free = largest_free(*bins));
      bins->changed = false;
    }
    return std::max(largest, free_.empty() ? 0 : *free_.rbegin());
  }

  void do_check() const override {
    inner().check();
    require(inner().stats().reserved.current == counted().reserved.current,
            "a wrapper and the allocator inside it reserve the same bytes");
    for (auto const& [pool, bins] : bins_) check(bins);
  }

  // to change them
  Bins& bins_of(Stream stream) {
    PoolId const pool = pool_of(stream);
    Bins& bins = bins_.try_emplace(pool, pool, smallest_, largest_).first->second;
    change(bins);
    return bins;
  }

  void change(Bins& bins) {
    if (!std::exchange(bins.changed, true)) changed_.push_back(&bins);
  }

  static Size largest_free(Bins const& bins) {
    Size largest = 0;
    for (Bin const& bin : bins.all)
      bin.queues.for_each([&](Queue const& queue) {
        if (!queue.blocks.empty()) largest = std::max(largest, bin.size);
      });
    for (auto const& [address, chunk] : bins.chunks) largest = std::max(largest, chunk.rest);
    return largest;
  }

  // Gets another chunk of blocks from the inner allocator, if it has one.
  void fill(Bins& bins, Bin& bin, Queue& queue, Stream stream) {
    Block const chunk = inner().try_allocate(bin.size * kBlocksPerChunk, stream);
    if (chunk.size == 0) return;
    auto& [blocks, rest] = bins.chunks[chunk.address];
    rest = chunk.size - bin.size * kBlocksPerChunk;
    for (Size offset = 0; offset < bin.size * kBlocksPerChunk; offset += bin.size) {
      Index const block = nodes_.create(chunk.address + offset, bin.size);
      blocks.push_back(block);
      queue.blocks.push_back(block);
      bins.block_at.insert(chunk.address + offset, block);
    }
  }

  // Gives the chunks without an allocated block back to the inner allocator.
  void give_back(Bins& bins) {
    change(bins);
    for (auto chunk = bins.chunks.begin(); chunk != bins.chunks.end();) {
      auto const address = chunk->first;
      auto const& blocks = chunk->second.blocks;
      if (!is_free(blocks)) {
        ++chunk;
        continue;
      }
      for (Index const block : blocks) bins.block_at.erase(nodes_[block].block.address);
      Bin& bin = *bins.bin_for(nodes_[blocks.front()].block.size);
      bin.queues.for_each([&](Queue& queue) {
        std::erase_if(queue.blocks, [&](Index b) {
          return bins.block_at.find(nodes_[b].block.address) == kNone;
        });
      });
      for (Index const block : blocks) nodes_.drop(block);
      inner().try_deallocate(address, in_pool(0, bins.pool));
      chunk = bins.chunks.erase(chunk);
    }
  }

  bool is_free(std::vector<Index> const& blocks) const {
    return std::ranges::none_of(blocks, [&](Index b) { return nodes_[b].block.allocated(); });
  }

  void check(Bins const& bins) const {
    std::size_t blocks = 0, free = 0, queued = 0;
    for (auto const& [address, chunk] : bins.chunks) {
      blocks += chunk.blocks.size();
      for (Index const index : chunk.blocks) free += !nodes_[index].block.allocated();
    }
    for (Bin const& bin : bins.all)
      bin.queues.for_each([&](Queue const& queue) {
        queued += queue.blocks.size();
        for (Index const index : queue.blocks)
          require(nodes_[index].block.size == bin.size && !nodes_[index].block.allocated(),
                  "a queue contains free blocks of its bin");
      });
    require(blocks == bins.block_at.size(), "every block of a bin is found by its address");
    require(free == queued, "every free block of a bin is in one queue");
  }

  Size smallest_;
  Size largest_;
  Nodes nodes_;  // the blocks of all bins
  std::map<PoolId, Bins> bins_;
  mutable std::vector<Bins*> changed_;
  mutable std::multiset<Size> free_;  // free block of each that has been looked at
};

}  // namespace allocbench

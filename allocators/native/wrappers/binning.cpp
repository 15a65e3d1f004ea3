// wrappers/binning.cpp: pools of fixed block sizes in front of the inner allocator.
// SPDX-License-Identifier: Apache-2.0
#include "wrappers/binning.hpp"

#include <algorithm>
#include <bit>

namespace allocbench {
namespace {

constexpr Size kBlocksPerChunk = 128;
constexpr Size kSmallestBlock = 256;
constexpr Size kLargestBlock = kGiB;

}  // namespace

Binning::Binning(Device& device, Options const& given, MakeInner const& make_inner)
    : Wrapper(device, make_inner),
      smallest_(given.bytes("smallest")),
      largest_(given.bytes("largest")) {
  if (!std::has_single_bit(smallest_) || smallest_ < kSmallestBlock || smallest_ > kLargestBlock)
    given.reject("smallest", "must be a power of two from 256 bytes to 1 GiB");
  if (!std::has_single_bit(largest_) || largest_ < smallest_ || largest_ > kLargestBlock)
    given.reject("largest", "must be a power of two from `smallest` to 1 GiB");
}

Binning::Bins::Bins(PoolId of, Size smallest, Size largest) : pool(of) {
  for (Size size = smallest; size <= largest; size *= 2) all.emplace_back(size);
}

Binning::Bin* Binning::Bins::bin_for(Size size) {
  auto const bin = std::ranges::find_if(all, [&](Bin const& b) { return b.size >= size; });
  return bin == all.end() ? nullptr : &*bin;
}

Binning::Bins& Binning::bins_of(Stream stream) {
  PoolId const pool = pool_of(stream);
  Bins& bins = bins_.try_emplace(pool, pool, smallest_, largest_).first->second;
  bins.largest_free.reset();
  return bins;
}

// Gets another chunk of blocks from the inner allocator, if it has one.
void Binning::fill(Bins& bins, Bin& bin, Queue& queue, Stream stream) {
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

Block Binning::do_allocate(Size requested, Stream stream) {
  Bins& bins = bins_of(stream);
  if (!bins.started && requested <= device().capacity()) {
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

Block Binning::do_deallocate(Address address, Stream stream) {
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

bool Binning::is_free(std::vector<Index> const& blocks) const {
  return std::ranges::none_of(blocks, [&](Index b) { return nodes_[b].block.allocated(); });
}

// Gives the chunks without an allocated block back to the inner allocator.
void Binning::give_back(Bins& bins) {
  bins.largest_free.reset();
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
      std::erase_if(queue.blocks,
                    [&](Index b) { return bins.block_at.find(nodes_[b].block.address) == kNone; });
    });
    for (Index const block : blocks) nodes_.drop(block);
    inner().try_deallocate(address, in_pool(0, bins.pool));
    chunk = bins.chunks.erase(chunk);
  }
}

void Binning::do_trim() {
  for (auto& [pool, bins] : bins_)
    if (pool == 0 || pools().released(pool)) give_back(bins);
  Wrapper::do_trim();
}

void Binning::do_trim_pool(PoolId pool) {
  auto const bins = bins_.find(pool);
  if (bins != bins_.end() && pools().released(pool)) give_back(bins->second);
  Wrapper::do_trim_pool(pool);
}

std::vector<Segment> Binning::do_snapshot() const {
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

Size Binning::do_largest_free() const {
  Size largest = Wrapper::do_largest_free();
  for (auto const& [pool, bins] : bins_) {
    if (!bins.largest_free) bins.largest_free = largest_free(bins);
    largest = std::max(largest, *bins.largest_free);
  }
  return largest;
}

Size Binning::largest_free(Bins const& bins) {
  Size largest = 0;
  for (Bin const& bin : bins.all)
    bin.queues.for_each([&](Queue const& queue) {
      if (!queue.blocks.empty()) largest = std::max(largest, bin.size);
    });
  for (auto const& [address, chunk] : bins.chunks) largest = std::max(largest, chunk.rest);
  return largest;
}

void Binning::do_check() const {
  inner().check();
  require(inner().stats().reserved.current == counted().reserved.current,
          "a wrapper and the allocator inside it reserve the same bytes");
  for (auto const& [pool, bins] : bins_) check(bins);
}

void Binning::check(Bins const& bins) const {
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

}  // namespace allocbench

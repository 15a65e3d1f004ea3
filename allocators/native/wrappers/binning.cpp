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
    : Wrapper(device, make_inner) {
  Size const smallest = given.bytes("smallest"), largest = given.bytes("largest");
  if (!std::has_single_bit(smallest) || smallest < kSmallestBlock || smallest > kLargestBlock)
    given.reject("smallest", "must be a power of two from 256 bytes to 1 GiB");
  if (!std::has_single_bit(largest) || largest < smallest || largest > kLargestBlock)
    given.reject("largest", "must be a power of two from `smallest` to 1 GiB");
  for (Size size = smallest; size <= largest; size *= 2) bins_.emplace_back(size);
}

Binning::Bin* Binning::bin_for(Size size) {
  auto const bin = std::ranges::find_if(bins_, [&](Bin const& b) { return b.size >= size; });
  return bin == bins_.end() ? nullptr : &*bin;
}

// Gets another chunk of blocks from the inner allocator, if it has one.
void Binning::fill(Bin& bin, Queue& queue, Stream stream) {
  Block const chunk = inner().try_allocate(bin.size * kBlocksPerChunk, stream);
  if (chunk.size == 0) return;
  std::vector<Index>& blocks = chunks_[chunk.address];
  for (Size offset = 0; offset < bin.size * kBlocksPerChunk; offset += bin.size) {
    Index const block = nodes_.create(chunk.address + offset, bin.size);
    blocks.push_back(block);
    queue.blocks.push_back(block);
    block_at_.insert(chunk.address + offset, block);
  }
}

Block Binning::do_allocate(Size requested, Stream stream) {
  if (!started_ && requested <= device().capacity()) {
    started_ = true;
    for (Bin& bin : bins_) fill(bin, bin.queues.of(0), 0);
  }
  Bin* const bin = bin_for(requested);
  if (bin == nullptr) return Wrapper::do_allocate(requested, stream);
  Queue& own = bin->queues.of(stream);
  auto const absorb = [&](Queue& other) {
    own.blocks.insert(own.blocks.end(), other.blocks.begin(), other.blocks.end());
    other.blocks.clear();
  };
  auto [queue, index] = bin->queues.choose(bin->size, own, absorb);
  if (index == kNone) {
    fill(*bin, own, stream);
    index = own.fit(bin->size);
  }
  if (index == kNone) return {};
  queue.blocks.pop_front();
  nodes_[index].block.requested = requested;
  return nodes_[index].block;
}

Block Binning::do_deallocate(Address address, Stream stream) {
  Index const index = block_at_.find(address);
  if (index == kNone)
    return chunks_.contains(address) ? Block{} : Wrapper::do_deallocate(address, stream);
  Block const freed = nodes_[index].block;
  if (!freed.allocated()) return {};
  nodes_[index].block.requested = 0;
  bin_for(freed.size)->queues.of(stream).blocks.push_back(index);
  return freed;
}

bool Binning::is_free(std::vector<Index> const& blocks) const {
  return std::ranges::none_of(blocks, [&](Index b) { return nodes_[b].block.allocated(); });
}

// Gives the chunks without an allocated block back to the inner allocator, and trims that.
void Binning::do_trim() {
  for (auto chunk = chunks_.begin(); chunk != chunks_.end();) {
    auto const& [address, blocks] = *chunk;
    if (!is_free(blocks)) {
      ++chunk;
      continue;
    }
    for (Index const block : blocks) block_at_.erase(nodes_[block].block.address);
    Bin& bin = *bin_for(nodes_[blocks.front()].block.size);
    bin.queues.for_each([&](Queue& queue) {
      std::erase_if(queue.blocks,
                    [&](Index b) { return block_at_.find(nodes_[b].block.address) == kNone; });
    });
    for (Index const block : blocks) nodes_.drop(block);
    inner().try_deallocate(address);
    chunk = chunks_.erase(chunk);
  }
  Wrapper::do_trim();
}

std::vector<Segment> Binning::do_snapshot() const {
  auto segments = Wrapper::do_snapshot();
  for (Segment& segment : segments) {
    std::vector<Block> blocks;
    for (Block const& block : segment.blocks) {
      auto const chunk = chunks_.find(block.address);
      if (chunk == chunks_.end() || !block.allocated()) {
        blocks.push_back(block);
        continue;
      }
      Address end = block.address;
      for (Index const index : chunk->second) {
        blocks.push_back(nodes_[index].block);
        end = blocks.back().end();
      }
      // The inner allocator may have given more than was requested.
      if (end < block.end()) blocks.push_back({end, block.end() - end, 0});
    }
    segment.blocks = std::move(blocks);
  }
  return segments;
}

Size Binning::do_largest_free() const {
  Size largest = 0;
  for (Segment const& segment : do_snapshot())
    for (Block const& block : segment.blocks)
      if (!block.allocated()) largest = std::max(largest, block.size);
  return largest;
}

void Binning::do_check() const {
  inner().check();
  require(inner().stats().reserved.current == counted().reserved.current,
          "a wrapper and the allocator inside it reserve the same bytes");
  std::size_t blocks = 0, free = 0, queued = 0;
  for (auto const& [address, indices] : chunks_) {
    blocks += indices.size();
    for (Index const index : indices) free += !nodes_[index].block.allocated();
  }
  for (Bin const& bin : bins_)
    bin.queues.for_each([&](Queue const& queue) {
      queued += queue.blocks.size();
      for (Index const index : queue.blocks)
        require(nodes_[index].block.size == bin.size && !nodes_[index].block.allocated(),
                "a queue contains free blocks of its bin");
    });
  require(blocks == block_at_.size(), "every block of a bin is found by its address");
  require(free == queued, "every free block of a bin is in one queue");
}

}  // namespace allocbench

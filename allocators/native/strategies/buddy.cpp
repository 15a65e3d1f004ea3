// strategies/buddy.cpp: power-of-two blocks that split in half and merge with their buddies.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/buddy.hpp"

#include <algorithm>

#include "core/errors.hpp"

namespace allocbench {

Buddy::Buddy(Device& device, Options const& given)
    : Allocator(device), region_size_(given.bytes("region")), free_(nodes_) {
  if (!std::has_single_bit(region_size_) || region_size_ < kSmallest)
    given.reject("region", "must be a power of two of at least 1 KiB");
}

Block Buddy::do_allocate(Size requested, Stream) {
  Size const size = std::max(kSmallest, std::bit_ceil(requested));
  Index node = free_.fit(size);
  if (node == kNone && grow(size)) node = free_.fit(size);
  if (node == kNone && release_idle()) {
    count_retry();
    if (grow(size)) node = free_.fit(size);
  }
  if (node == kNone) return {};
  free_.remove(node);
  while (nodes_[node].block.size > size) split(node);
  nodes_[node].block.requested = requested;
  allocated_.insert(nodes_[node].block.address, node);
  return nodes_[node].block;
}

// Makes a free block of the upper half.
void Buddy::split(Index node) {
  Size const half = nodes_[node].block.size /= 2;
  Index const upper = nodes_.create(nodes_[node].block.address + half, half);
  Index const next = nodes_[node].next;
  nodes_[upper].origin = nodes_[node].origin;
  nodes_[upper].previous = node;
  nodes_[upper].next = next;
  nodes_[next].previous = upper;
  nodes_[node].next = upper;
  free_.insert(upper);
  ++halvings_;
}

Block Buddy::do_deallocate(Address address, Stream) {
  Index node = allocated_.erase(address);
  if (node == kNone) return {};
  Block const freed = nodes_[node].block;
  nodes_[node].block.requested = 0;
  for (;;) {
    Index const buddy = buddy_of(node);
    Block const& other = nodes_[buddy].block;
    if (other.allocated() || other.size != nodes_[node].block.size) break;
    free_.remove(buddy);
    node = other.address < nodes_[node].block.address ? buddy : node;
    merge(node);
  }
  free_.insert(node);
  return freed;
}

// The neighbor on the side of the other half, which is the other half if it has the same size;
// kNone for a whole region.
Index Buddy::buddy_of(Index node) const {
  Node const& of = nodes_[node];
  bool const upper = ((of.block.address - of.origin) & of.block.size) != 0;
  return upper ? of.previous : of.next;
}

// Adds the upper half to the lower one; neither is in a bin.
void Buddy::merge(Index lower) {
  Index const upper = nodes_[lower].next;
  Index const next = nodes_[upper].next;
  nodes_[lower].next = next;
  nodes_[next].previous = lower;
  nodes_[lower].block.size *= 2;
  nodes_.drop(upper);
  ++halvings_;
}

bool Buddy::grow(Size size) {
  Size const wanted = std::min(region_size_, std::bit_floor(room()));
  auto const [address, granted] = acquire_between(size, wanted, size);
  if (address == 0) return false;
  Index const node = nodes_.create(address, granted);
  nodes_[node].origin = address;
  regions_.emplace(address, Region{granted, node});
  free_.insert(node);
  return true;
}

// Returns every region that is one free block; false if there was none.
bool Buddy::release_idle() {
  if (!returns_memory()) return false;
  auto const idle = [this](auto const& entry) {
    auto const& [address, region] = entry;
    Block const& block = nodes_[region.first].block;
    if (block.allocated() || block.size != region.size) return false;
    free_.remove(region.first);
    nodes_.drop(region.first);
    release(address, region.size);
    return true;
  };
  return std::erase_if(regions_, idle) > 0;
}

std::vector<Segment> Buddy::do_snapshot() const {
  std::vector<Segment> all;
  for (auto const& [address, region] : regions_) {
    Segment& segment = all.emplace_back(Segment{address, region.size, {}});
    for (Index node = region.first; node != kNone; node = nodes_[node].next)
      segment.blocks.push_back(nodes_[node].block);
  }
  return all;
}

void Buddy::do_check() const {
  std::size_t allocated = 0;
  for (auto const& [start, region] : regions_) {
    require(std::has_single_bit(region.size), "a region is a power of two");
    Index previous = kNone;
    for (Index node = region.first; node != kNone; previous = node, node = nodes_[node].next) {
      Block const& block = nodes_[node].block;
      require(nodes_[node].previous == previous && nodes_[node].origin == start,
              "neighboring blocks are linked both ways, in one region");
      require(std::has_single_bit(block.size) && block.size >= kSmallest,
              "a block is a power of two of at least 1 KiB");
      require((block.address - start) % block.size == 0,
              "a block's offset is a multiple of its size");
      if (block.allocated()) {
        ++allocated;
        require(allocated_.find(block.address) == node, "an allocated block is in the address map");
        continue;
      }
      require(free_.contains(node), "a free block is in its bin");
      Block const& buddy = nodes_[buddy_of(node)].block;
      require(buddy.allocated() || buddy.size != block.size, "free buddies have merged");
    }
  }
  require(allocated == allocated_.size(), "the address map contains only allocated blocks");
}

}  // namespace allocbench

// strategies/buddy.cpp: power-of-two blocks that split in half and merge with their buddies.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/buddy.hpp"

#include <algorithm>
#include <iterator>

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
  for (; nodes_[node].block.size > size; ++halvings_) {
    Size const half = nodes_[node].block.size /= 2;
    Index const upper = nodes_.create(nodes_[node].block.address + half, half);
    blocks_.insert(nodes_[upper].block.address, upper);
    free_.insert(upper);
  }
  nodes_[node].block.requested = requested;
  return nodes_[node].block;
}

Block Buddy::do_deallocate(Address address, Stream) {
  Index node = blocks_.find(address);
  if (node == kNone || !nodes_[node].block.allocated()) return {};
  Block const freed = nodes_[node].block;
  nodes_[node].block.requested = 0;
  auto const& [start, region] = *region_of(address);
  for (; nodes_[node].block.size < region; ++halvings_) {
    Block const& block = nodes_[node].block;
    Index const buddy = blocks_.find(start + ((block.address - start) ^ block.size));
    Block const& other = nodes_[buddy].block;
    if (other.allocated() || other.size != block.size) break;
    free_.remove(buddy);
    auto const [lower, upper] =
        block.address < other.address ? std::pair{node, buddy} : std::pair{buddy, node};
    blocks_.erase(nodes_[upper].block.address);
    nodes_.drop(upper);
    nodes_[lower].block.size *= 2;
    node = lower;
  }
  free_.insert(node);
  return freed;
}

bool Buddy::grow(Size size) {
  Size const wanted = std::min(region_size_, std::bit_floor(room()));
  auto const [address, granted] = acquire_between(size, wanted, size);
  if (address == 0) return false;
  regions_.emplace(address, granted);
  Index const node = nodes_.create(address, granted);
  blocks_.insert(address, node);
  free_.insert(node);
  return true;
}

// Returns every region that is one free block; false if there was none.
bool Buddy::release_idle() {
  if (!returns_memory()) return false;
  auto const idle = [this](auto const& region) {
    Index const node = blocks_.find(region.first);
    Block const& block = nodes_[node].block;
    if (block.allocated() || block.size != region.second) return false;
    free_.remove(node);
    blocks_.erase(region.first);
    nodes_.drop(node);
    release(region.first, region.second);
    return true;
  };
  return std::erase_if(regions_, idle) > 0;
}

std::map<Address, Size>::const_iterator Buddy::region_of(Address address) const {
  return std::prev(regions_.upper_bound(address));
}

std::vector<Segment> Buddy::do_snapshot() const {
  std::vector<Segment> all;
  for (auto const& [start, size] : regions_) {
    Segment& segment = all.emplace_back(Segment{start, size, {}});
    for (Address address = start; address < start + size; address = segment.blocks.back().end())
      segment.blocks.push_back(nodes_[blocks_.find(address)].block);
  }
  return all;
}

void Buddy::do_check() const {
  for (auto const& [start, size] : regions_)
    require(std::has_single_bit(size), "a region is a power of two");
  blocks_.for_each([this](Address address, Index node) {
    Block const& block = nodes_[node].block;
    auto const& [start, region] = *region_of(address);
    require(std::has_single_bit(block.size) && block.size >= kSmallest,
            "a block is a power of two of at least 1 KiB");
    require((address - start) % block.size == 0, "a block's offset is a multiple of its size");
    if (block.allocated()) return;
    require(free_.contains(node), "a free block is in its bin");
    if (block.size == region) return;
    Block const& buddy = nodes_[blocks_.find(start + ((address - start) ^ block.size))].block;
    require(buddy.allocated() || buddy.size != block.size, "free buddies have merged");
  });
}

}  // namespace allocbench

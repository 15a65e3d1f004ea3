// strategies/buddy.hpp: power-of-two blocks that split in half and merge with their buddies.
// SPDX-License-Identifier: Apache-2.0
//
// A request takes a block of the next power of two, at least 1 KiB. The smallest free block that is
// large enough (at the lowest address among equals) is halved until it has that size. A freed block
// merges with its buddy, the other half of the block from which both were split, while the buddy is
// free too. The offsets of buddies differ in one bit. Memory grows by regions, each a power of two
// with its own tree. Every request and every free takes O(log(region / 1 KiB)) splits or merges,
// each of O(log n) time for n free blocks of one size.
//
// Bad at: sizes just above a power of two, which nearly double.
#pragma once

#include <algorithm>
#include <bit>
#include <map>

#include "core/allocator.hpp"
#include "core/errors.hpp"
#include "parts/address_map.hpp"
#include "parts/free_index.hpp"

namespace allocbench {

class Buddy : public Allocator {
 public:
  static constexpr Size kSmallest = kKiB;
  static constexpr Option options[] = {
      {"region", OptionType::kBytes, "1GiB",
       "bytes of a region, a power of two; a larger request gets its own region"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "buddy",
      .summary = "powers of two from 1 KiB up, split into halves and merged with their buddies",
      .worst_case = "inside a block: half of it; outside: free neighbors that are not buddies",
      .reference = "Knowlton, A fast storage allocator, CACM 8(10), 1965",
      .options = options,
      .largest_request =
          [](Size capacity) { return capacity < kSmallest ? 0 : std::bit_floor(capacity); },
      .exemption = "a block is a power of two, and so is the region that it needs",
  };

  Buddy(Device& device, Options const& given)
      : Allocator(device), region_size_(given.bytes("region")), free_(nodes_) {
    if (!std::has_single_bit(region_size_) || region_size_ < kSmallest)
      given.reject("region", "must be a power of two of at least 1 KiB");
  }

  StrategyInfo const& info() const override { return strategy; }

 private:
  struct Region {
    Size size;
    Index first;  // its first block
  };

 protected:
  [[gnu::flatten]] Block do_allocate(Size requested, Stream) override {
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

  [[gnu::flatten]] Block do_deallocate(Address address, Stream) override {
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

  void do_trim() override { release_idle(); }

  std::vector<Segment> do_snapshot() const override {
    std::vector<Segment> all;
    for (auto const& [address, region] : regions_) {
      Segment& segment = all.emplace_back(Segment{address, region.size, {}});
      for (Index node = region.first; node != kNone; node = nodes_[node].next)
        segment.blocks.push_back(nodes_[node].block);
    }
    return all;
  }

  Size do_largest_free() const override { return free_.largest(); }

  void do_check() const override {
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
          require(allocated_.find(block.address) == node,
                  "an allocated block is in the address map");
          continue;
        }
        require(free_.contains(node), "a free block is in its bin");
        Block const& buddy = nodes_[buddy_of(node)].block;
        require(buddy.allocated() || buddy.size != block.size, "free buddies have merged");
      }
    }
    require(allocated == allocated_.size(), "the address map contains only allocated blocks");
  }

  Counters do_counters() const override {
    return {{"search_steps", free_.search_steps() + allocated_.search_steps() + halvings_}};
  }

 private:
  bool grow(Size size) {
    Size const wanted = has_room(region_size_) ? region_size_ : std::bit_floor(room());
    auto const [address, granted] = acquire_between(size, wanted, size);
    if (address == 0) return false;
    Index const node = nodes_.create(address, granted);
    nodes_[node].origin = address;
    regions_.emplace(address, Region{granted, node});
    free_.insert(node);
    return true;
  }

  // Returns every region that is one free block; false if there was none.
  bool release_idle() {
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

  // Makes a free block of the upper half.
  void split(Index node) {
    Size const half = nodes_[node].block.size /= 2;
    Index const upper = nodes_.create(nodes_[node].block.address + half, half);
    nodes_[upper].origin = nodes_[node].origin;
    nodes_.link_after(node, upper);
    free_.insert(upper);
    ++halvings_;
  }

  // The neighbor on the side of the other half, which is the other half if it has the same size;
  // kNone for a whole region.
  Index buddy_of(Index node) const {
    Node const& of = nodes_[node];
    bool const upper = ((of.block.address - of.origin) & of.block.size) != 0;
    return upper ? of.previous : of.next;
  }

  // Adds the upper half to the lower one; neither is in a bin.
  void merge(Index lower) {
    Index const upper = nodes_[lower].next;
    nodes_.unlink_next(lower);
    nodes_[lower].block.size *= 2;
    nodes_.drop(upper);
    ++halvings_;
  }

  Size region_size_;
  Nodes nodes_;
  FreeIndexWith<0> free_;  // a bin for each power of two
  AddressMap allocated_;
  std::map<Address, Region> regions_;
  std::uint64_t halvings_ = 0;  // splits and merges
};

}  // namespace allocbench

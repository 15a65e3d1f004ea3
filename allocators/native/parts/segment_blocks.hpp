// parts/segment_blocks.hpp: segments tiled by blocks that split and coalesce.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <numeric>
#include <vector>

#include "core/errors.hpp"
#include "parts/address_map.hpp"
#include "parts/free_index.hpp"

namespace allocbench {

// Holds segments obtained by its owner, each tiled by blocks in address order. Free neighbors are
// always coalesced, into the node of the lower one, so the first node of a segment stays first.
// `Free` stores the free blocks and chooses among them. It can withhold a block, which then does
// not coalesce. Each operation takes O(1) expected time in addition to that of `Free`.
template <class Free>
class SegmentBlocks {
 public:
  SegmentBlocks() : free_(nodes_) {}
  SegmentBlocks(SegmentBlocks const&) = delete;
  SegmentBlocks& operator=(SegmentBlocks const&) = delete;

  // Adds a segment as one free block and returns that block. With `join`, a segment that begins
  // where another one ends becomes part of it, and its block coalesces with a free block before it.
  Index add(Address address, Size size, bool join = false) {
    Index const node = nodes_.create(address, size);
    auto const after = segments_.lower_bound(address);
    if (join && after != segments_.begin()) {
      auto& [start, extent] = *std::prev(after);
      if (start + extent.size == address) {
        if (extent.added.empty()) extent.added.push_back(extent.size);
        extent.added.push_back(size);
        extent.size += size;
        Index last = extent.first;
        while (nodes_[last].next != kNone) last = nodes_[last].next;
        nodes_.link_after(last, node);
        Index const block = joins(last) ? absorbed_into(last) : node;
        free_.insert(block);
        return block;
      }
    }
    segments_.emplace(address, Extent{size, node});
    free_.insert(node);
    return node;
  }

  // A free block of at least `wanted` bytes, chosen by `Free`, or kNone.
  Index find(Size wanted) const { return free_.fit(wanted); }

  // Allocates the free block `node`, or its first `keep` bytes if it is larger.
  Block allocate(Index node, Size keep, Size requested) {
    free_.remove(node);
    Address const address = nodes_[node].block.address;
    if (Size const size = nodes_[node].block.size; keep < size) {
      Index const rest = nodes_.create(address + keep, size - keep);
      nodes_.link_after(node, rest);
      nodes_[node].block.size = keep;
      free_.insert(rest);
    }
    nodes_[node].block.requested = requested;
    allocated_.insert(address, node);
    return {address, keep, requested};
  }

  // Frees the allocated block at `address` and coalesces it with its neighbors. Returns the block
  // as it was allocated, or a block of size 0 if none is allocated there.
  Block deallocate(Address address) {
    Index const node = allocated_.erase(address);
    if (node == kNone) return {};
    Block const freed = nodes_[node].block;
    nodes_[node].block.requested = 0;
    free_.insert(coalesced(node));
    return freed;
  }

  // The allocated block at `address`, or a block of size 0.
  Block allocated(Address address) const {
    Index const node = allocated_.find(address);
    return node == kNone ? Block{} : nodes_[node].block;
  }

  // Bytes of the idle segments, which are those without an allocated block.
  Size idle_bytes() const {
    Size bytes = 0;
    for (auto const& [address, extent] : segments_)
      if (is_idle(extent)) bytes += extent.size;
    return bytes;
  }

  // Removes the idle segments and calls `release(address, size)` for each in address order. A
  // joined segment is released in the pieces in which it was added. The segment at `kept` stays.
  // False if no segment was removed.
  template <class Release>
  bool release_idle(Release release, Address kept = 0) {
    std::size_t const before = segments_.size();
    for (auto entry = segments_.begin(); entry != segments_.end();) {
      auto const& [address, extent] = *entry;
      if (address == kept || !is_idle(extent)) {
        ++entry;
        continue;
      }
      for (Index node = extent.first, next; node != kNone; node = next) {
        next = nodes_[node].next;
        free_.remove(node);
        drop(node);
      }
      if (extent.added.empty()) release(address, extent.size);
      for (Address part = address; Size const size : extent.added) {
        release(part, size);
        part += size;
      }
      entry = segments_.erase(entry);
    }
    return segments_.size() < before;
  }

  Block const& block(Index node) const { return nodes_[node].block; }
  Size largest_free() const { return free_.largest(); }
  std::uint64_t search_steps() const { return free_.search_steps() + allocated_.search_steps(); }

  std::vector<Segment> snapshot() const {
    std::vector<Segment> all;
    for (auto const& [address, extent] : segments_) {
      Segment& segment = all.emplace_back(Segment{address, extent.size, {}});
      for (Index node = extent.first; node != kNone; node = nodes_[node].next)
        segment.blocks.push_back(nodes_[node].block);
    }
    return all;
  }

  // Throws InvariantViolation.
  void check() const {
    std::size_t allocated = 0;
    for (auto const& [address, extent] : segments_) {
      require(extent.added.empty() ||
                  std::reduce(extent.added.begin(), extent.added.end()) == extent.size,
              "a joined segment is as large as its pieces");
      Index previous = kNone;
      for (Index node = extent.first; node != kNone; previous = node, node = nodes_[node].next) {
        Block const& block = nodes_[node].block;
        require(nodes_[node].previous == previous, "neighboring blocks are linked both ways");
        if (block.allocated()) {
          ++allocated;
          require(!withheld(node), "an allocated block is not withheld");
          require(allocated_.find(block.address) == node,
                  "an allocated block is in the address map");
        } else {
          require(free_.contains(node), "a free block is in its bin, unless it is withheld");
          require(leaves_neighbors() || previous == kNone || nodes_[previous].block.allocated(),
                  "free neighbors have coalesced");
        }
      }
    }
    require(allocated == allocated_.size(), "the address map contains only allocated blocks");
  }

 protected:
  // Merges a block with its free neighbors, which are removed from their bins, and returns the
  // merged block. The block is in no bin before or after.
  Index coalesced(Index node) {
    if (Index const next = nodes_[node].next; joins(next)) {
      free_.remove(next);
      absorb_next(node);
    }
    Index const previous = nodes_[node].previous;
    return joins(previous) ? absorbed_into(previous) : node;
  }

  Nodes nodes_;
  Free free_;
  AddressMap allocated_;

 private:
  struct Extent {
    Size size;
    Index first;
    std::vector<Size> added = {};  // sizes of the joined pieces, in order; empty if not joined
  };

  bool is_idle(Extent const& extent) const {
    Index node = extent.first;
    while (node != kNone && !nodes_[node].block.allocated()) node = nodes_[node].next;
    return node == kNone;
  }

  bool withheld(Index node) const {
    if constexpr (requires { free_.withholds(node); })
      return free_.withholds(node);
    else
      return false;
  }

  bool leaves_neighbors() const {
    if constexpr (requires { free_.leaves_neighbors(); })
      return free_.leaves_neighbors();
    else
      return false;
  }

  bool joins(Index neighbor) const {
    return !nodes_[neighbor].block.allocated() && !withheld(neighbor);
  }

  void drop(Index node) {
    nodes_[node].block.size = 0;
    nodes_.drop(node);
  }

  // Takes the free block `previous` out of its bin and merges the next block into it.
  Index absorbed_into(Index previous) {
    free_.remove(previous);
    absorb_next(previous);
    return previous;
  }

  // The next block must be free; neither block is in a bin.
  void absorb_next(Index node) {
    Index const absorbed = nodes_[node].next;
    nodes_[node].block.size += nodes_[absorbed].block.size;
    nodes_.unlink_next(node);
    drop(absorbed);
  }

  std::map<Address, Extent> segments_;
};

using BestFitBlocks = SegmentBlocks<FreeIndex>;

}  // namespace allocbench

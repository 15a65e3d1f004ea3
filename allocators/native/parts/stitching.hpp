// parts/stitching.hpp: pools whose pages are mapped where a block needs them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "core/allocator.hpp"
#include "parts/pooled_blocks.hpp"

namespace allocbench {

// The base class of strategies that use virtual memory. Each stream has a pool of small and a pool
// of large blocks. A pool has reservations with far more addresses than memory, which is mapped
// page by page. A request takes the front of the best-fitting free block of its pool. A freed block
// coalesces with its free neighbors at once.
//
// If no free block fits, the request is stitched: among the address ranges without a block in use,
// it takes the one that lacks the fewest pages; ranges around the largest free blocks are examined
// first. The missing pages are taken from free blocks of any pool, smallest block first: wholly
// free pages are unmapped there and mapped into the range. New pages are obtained from the device
// only if there are too few free ones, or while reserved bytes stay within a slack above the peak
// load. Hence no request fails while the wholly free pages and the remaining memory of the device
// suffice.
//
// A request and a free take O(log n) time for n free blocks in the pool. A stitched request also
// visits each free block that gives up pages and, if there is no range around the largest free
// blocks, all unmapped ranges of its pool.
//
// A block that is freed on a stream other than its own may still be in use there. It can be reused
// after the next step, trim or shortage, because a program then synchronizes all of its streams.
class Stitching : public Allocator {
 protected:
  // Rejects the option `page` if it gave a `page` that is not a multiple of the granularity.
  // Requests of up to `small` bytes go to the small pools. `slack` is a fraction of the load.
  Stitching(Device& device, Options const& given, Size page, Size small, double slack);

  // An allocated block of at least `size` bytes, or kNone.
  Index allocate_in_pools(Size size, Size requested, Stream stream);
  Block block(Index index) const { return index == kNone ? Block{} : blocks_[index].block; }
  PooledBlocks::Freed deallocate_in_pools(Address address, Stream stream) {
    return blocks_.deallocate(address, stream);
  }
  void streams_done() {
    blocks_.streams_done();
    do_streams_done();
  }
  double slack() const { return slack_; }
  void set_slack(double slack) { slack_ = slack; }
  // Unmaps up to `most` bytes of free pages of the pools and returns the number of bytes.
  Size give_up_free_pages(Size most);
  void trim_pools();
  Size page() const { return page_; }
  PooledBlocks const& blocks() const { return blocks_; }
  Counters stitching_counters() const;

 private:
  using BlockPool = PooledBlocks::BlockPool;
  using Range = PooledBlocks::Range;

  // A range of addresses for a block.
  struct Spot {
    Index first;  // the free or unmapped block in which the range begins; kNone: no range
    Range place;
    Size missing;  // bytes of the pages that are not mapped
  };
  struct Idle {  // wholly free pages
    Index block;
    Range pages;
  };

  // The bytes of pages outside the pools that can be unmapped, and a call that unmaps that many.
  virtual Size do_spare() const { return 0; }
  virtual void do_give_up(Size) {}
  // All streams have been synchronized, so blocks outside the pools no longer wait for them.
  virtual void do_streams_done() {}

  Index obtain(BlockPool& pool, Size wanted, bool refused);
  Index stitch(BlockPool& pool, Size wanted, bool refused);
  Spot find_spot(BlockPool& pool, Size wanted) const;
  Spot measured(Index first, Range place, Size most) const;
  Spot new_reservation(BlockPool& pool, Size wanted);
  bool make_room(Spot const& spot, Stream stream, bool refused);
  Size excess(Spot const& spot) const;
  std::vector<Idle> idle(Size most, Range except, Stream stream);
  Index first_block(Spot const& spot, BlockPool const& pool) const;
  Index map_missing(Index first, Range place);
  Range missing(Index block, Range place) const;
  void unmap_pages(Index block, Range pages);
  bool is_free(Index block) const { return block != kNone && !blocks_.in_use(block); }

  Size page_;
  Size small_;
  double slack_;
  PooledBlocks blocks_{false};
  std::uint64_t stitched_ = 0;         // requests for which pages were moved
  std::uint64_t moved_ = 0;            // pages
  mutable std::uint64_t visited_ = 0;  // blocks visited by searches for a spot
};

}  // namespace allocbench

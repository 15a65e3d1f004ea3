// parts/stitching.hpp: pools of pages that are mapped where a block needs them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "core/allocator.hpp"
#include "parts/pooled_blocks.hpp"

namespace allocbench {

// What strategies on virtual memory share. Each stream has a pool of small blocks and one of large
// blocks; each pool has addresses in plenty (reservations), with memory behind them by pages. The
// best fit among the free blocks of the pool is taken, its front handed out; a freed block
// coalesces with its free neighbours at once. When none fits, the request is stitched: of the
// ranges of addresses without a block in use the one is taken that lacks the fewest pages, as far
// as it is found around one of the largest free blocks; the
// pages that it lacks are unmapped where they lie wholly free, in whichever pool, from the smallest
// free block on, and mapped here. New pages come from the device only when free ones are too few,
// or as long as reserved bytes stay within a slack above the highest load. So no request fails
// while wholly free pages and what the device has left suffice for it. A request and a free take
// O(log n) steps in the free blocks of the pool. A request that is stitched passes free blocks of a
// page or more as well, as many as give their pages, and all the unmapped ranges of its pool where
// none around the largest free blocks will do.
//
// A block that is freed on another stream than its own counts as used there: it is free for reuse
// only after the next step, a trim or a shortage, where a program waits for all its streams.
class Stitching : public Allocator {
 protected:
  // A `page` is checked; requests of up to `small` bytes go to the small pools; `slack` is a share
  // of the load.
  Stitching(Device& device, Options const& given, Size small, double slack);

  // An allocated block of at least `size` bytes, or kNone.
  Index allocate_in_pools(Size size, Size requested, Stream stream);
  Block block(Index index) const { return index == kNone ? Block{} : blocks_[index].block; }
  PooledBlocks::Freed deallocate_in_pools(Address address, Stream stream) {
    return blocks_.deallocate(address, stream);
  }
  void streams_done() { blocks_.streams_done(); }
  // Unmaps free pages of the pools, up to so many bytes of them; returns how many.
  Size give_up_free_pages(Size most);
  void trim_pools();
  Size page() const { return page_; }
  PooledBlocks const& blocks() const { return blocks_; }
  Counters stitching_counters() const;

 private:
  using Pool = PooledBlocks::Pool;
  using Range = PooledBlocks::Range;

  // Where a block may come to lie.
  struct Spot {
    Index first;  // the free or unmapped block that it begins in; kNone: there is no such place
    Range place;
    Size missing;  // bytes of the pages to be mapped there
  };
  struct Idle {  // wholly free pages
    Index block;
    Range pages;
  };

  // Pages outside of the pools that may be unmapped, in bytes, and the unmapping of so many.
  virtual Size do_spare() const { return 0; }
  virtual void do_give_up(Size) {}

  Index obtain(Pool& pool, Size wanted, bool refused);
  Index stitch(Pool& pool, Size wanted, bool refused);
  Spot find_spot(Pool& pool, Size wanted) const;
  Spot measured(Index first, Range place, Size most) const;
  Spot new_space(Pool& pool, Size wanted);
  bool make_room(Spot const& spot, Stream stream, bool refused);
  Size excess(Spot const& spot) const;
  std::vector<Idle> idle(Size most, Range except, Stream stream);
  Index first_of(Spot const& spot, Pool const& pool) const;
  Index map_missing(Index first, Range place);
  Range missing(Index block, Range place) const;
  void unmap_pages(Index block, Range pages);
  bool is_free(Index block) const { return block != kNone && !blocks_.in_use(block); }

  Size page_;
  Size small_;
  double slack_;
  PooledBlocks blocks_{false};
  std::uint64_t stitched_ = 0;        // requests that pages were moved for
  std::uint64_t moved_ = 0;           // pages
  mutable std::uint64_t passed_ = 0;  // blocks, in looking for a spot
};

}  // namespace allocbench

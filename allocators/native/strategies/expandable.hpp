// strategies/expandable.hpp: memory in pages that are mapped where a block needs them.
// SPDX-License-Identifier: Apache-2.0
//
// Each stream has a pool of small blocks and one of large blocks; each pool has addresses in plenty
// (reservations), with memory behind them by pages. Sizes are rounded up to 256 bytes. The best fit
// among the free blocks of the pool is taken, its front handed out; a freed block coalesces with
// its free neighbours at once. When none fits, the request is stitched: of all the ranges of
// addresses without a block in use the one is taken that lacks the fewest pages; the pages that it
// lacks are unmapped where they lie wholly free, in whichever pool, from the smallest free block
// on, and mapped here. New pages come from the device only when free ones are too few, or as long
// as free memory stays within a slack. So no request fails while wholly free pages and what the
// device has left suffice for it, and reserved bytes stay near the allocated.
// A request and a free take O(log n) steps in the free blocks of the pool. A request that is
// stitched passes all the unmapped ranges of its pool as well, and free blocks of one page or more.
//
// A block that is freed on another stream than its own counts as used there: it is free for reuse
// only after the next step, a trim or a shortage, where a program waits for all its streams.
//
// Bad at: device calls. A page is a call to map and a call to unmap each time that it moves; larger
// pages move more at once, and are less often wholly free.
#pragma once

#include <cstdint>
#include <vector>

#include "core/allocator.hpp"
#include "parts/pooled_blocks.hpp"

namespace allocbench {

class Expandable final : public Allocator {
 public:
  static constexpr Size kRounding = 256;
  static constexpr Option options[] = {
      {"page", OptionType::kBytes, "2MiB",
       "bytes mapped and unmapped at a time, a multiple of the device's granularity"},
      {"small", OptionType::kBytes, "1MiB", "the largest request that the small pools serve"},
      {"slack", OptionType::kNumber, "0",
       "new pages are mapped before free ones are moved while reserved bytes stay within this "
       "share "
       "above the peak of allocated bytes; inf: until the device is full"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "expandable",
      .summary = "virtual memory: free pages from different places are stitched into one block",
      .worst_case = "255 bytes inside a block; outside, pages that hold any part of a block",
      .reference = "Guo et al., GMLake, ASPLOS 2024; expandable segments of PyTorch",
      .options = options,
      .largest_request = [](Size capacity) { return round_down(capacity, 2 * kMiB); },
      .exemption = "memory is mapped in pages of 2 MiB",
  };

  Expandable(Device& device, Options const& given);
  StrategyInfo const& info() const override { return strategy; }

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

  Block do_allocate(Size requested, Stream stream) override;
  Block do_deallocate(Address address, Stream stream) override {
    return blocks_.deallocate(address, stream);
  }
  void do_trim() override;
  void do_step() override { blocks_.streams_done(); }
  std::vector<Segment> do_snapshot() const override { return blocks_.snapshot(); }
  Size do_largest_free() const override { return blocks_.largest_free(); }
  void do_check() const override { blocks_.check(); }
  Counters do_counters() const override;

  Index obtain(Pool& pool, Size wanted, bool refused);
  Index stitch(Pool& pool, Size wanted, bool refused);
  Spot find_spot(Pool& pool, Size wanted) const;
  Spot measured(Index first, Range place) const;
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

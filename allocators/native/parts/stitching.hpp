// parts/stitching.hpp: pools whose pages are mapped where a block needs them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
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
  Stitching(Device& device, Options const& given, Size page, Size small, double slack)
      : Allocator(device), page_(page), small_(small), slack_(slack) {
    if (page_ == 0 || page_ % device.granularity() != 0)
      given.reject("page", "must be a multiple of the device's granularity, " +
                               std::to_string(device.granularity()) + " bytes");
  }

  // An allocated block of at least `size` bytes, or kNone.
  Index allocate_in_pools(Size wanted, Size requested, Stream stream) {
    if (!device().has(wanted)) return kNone;
    blocks_.free_waiting();
    PooledBlocks::StreamPools& pools = blocks_.of(stream);
    BlockPool& pool = wanted <= small_ ? pools.small : pools.large;
    Index block = obtain(pool, wanted, false);
    if (block == kNone) {
      streams_done();
      blocks_.free_waiting();
      block = obtain(pool, wanted, true);
    }
    if (block == kNone) return kNone;
    if (blocks_.size(block) > wanted) {
      Index const front = blocks_.split_front(block, wanted);
      blocks_.insert(block);
      block = front;
    }
    blocks_.allocate(block, requested);
    return block;
  }

  Block block(Index index) const { return index == kNone ? Block{} : blocks_[index].block; }
  PooledBlocks::Freed deallocate_in_pools(Address address, Stream stream) {
    return blocks_.deallocate(address, stream);
  }

  [[gnu::noinline]] void streams_done() {
    blocks_.streams_done();
    do_streams_done();
  }

  double slack() const { return slack_; }
  void set_slack(double slack) { slack_ = slack; }
  // Unmaps up to `most` bytes of free pages of the pools and returns the number of bytes.
  [[gnu::noinline]] Size give_up_free_pages(Size most) {
    if (!returns_memory()) return 0;
    Size bytes = 0;
    for (auto const& [block, pages] : idle(most, {}, 0)) {
      bytes += pages.size();
      unmap_pages(block, pages);
    }
    return bytes;
  }

  void trim_pools() {
    streams_done();
    blocks_.free_waiting();
    give_up_free_pages(counted().reserved.current);
    for (auto& [stream, pools] : blocks_.pools())
      for (BlockPool* pool : {&pools.small, &pools.large})
        for (auto entry = pool->unmapped.begin(); entry != pool->unmapped.end();) {
          Index const block = (entry++)->second;
          if (blocks_.whole(block)) unreserve(blocks_.close(block));
        }
  }

  Size page() const { return page_; }
  PooledBlocks const& blocks() const { return blocks_; }

  Counters stitching_counters() const {
    return {{"search_steps", blocks_.search_steps() + visited_},
            {"stitched_requests", stitched_},
            {"moved_pages", moved_}};
  }

 private:
  static constexpr Size kNever = std::numeric_limits<Size>::max();
  static constexpr int kExamined = 32;  // number of the largest free blocks to examine first

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

  // A free block of at least `wanted` bytes, removed from its pool, or kNone. `refused` is set for
  // the second attempt, after the first one found no block.
  Index obtain(BlockPool& pool, Size wanted, bool refused) {
    Index const fit = pool.free.fit(wanted);
    if (fit == kNone) return stitch(pool, wanted, refused);
    pool.free.remove(fit);
    return fit;
  }

  [[gnu::noinline]] Index stitch(BlockPool& pool, Size wanted, bool refused) {
    Spot spot = find_spot(pool, wanted);
    if (spot.first == kNone) spot = new_reservation(pool, wanted);
    if (spot.first == kNone || !make_room(spot, pool.stream, refused)) return kNone;
    Index const block = map_missing(first_block(spot, pool), spot.place);
    if (block == kNone) return kNone;
    blocks_.remove(block);
    if (Size const before = spot.place.begin - blocks_[block].block.address; before > 0)
      blocks_.insert(blocks_.split_front(block, before));
    return block;
  }

  // Of the candidate ranges around unmapped blocks, the one that lacks the fewest pages and, among
  // equals, has the lowest address. A candidate begins at the unmapped block or at the free block
  // before it, or ends at the end of the free block after it. Examines the neighbors of the largest
  // free blocks first, and all unmapped blocks only if there is no candidate among them.
  Spot find_spot(BlockPool& pool, Size wanted) const {
    Spot best{kNone, {}, kNever};
    auto const consider = [&](Index first, Address begin) {
      Spot const spot = measured(first, {begin, begin + wanted}, best.missing);
      bool const lower = spot.missing == best.missing && begin < best.place.begin;
      if (spot.missing < best.missing || lower) best = spot;
    };
    auto const consider_range = [&](Index unmapped) {
      Index const before = blocks_[unmapped].previous;
      Index const first = is_free(before) ? before : unmapped;
      consider(first, blocks_[first].block.address);
      Index block = blocks_[unmapped].next;
      if (!is_free(block)) return;
      Address const end = blocks_[block].block.end();
      auto const reaches = [&] { return end - blocks_[block].block.address; };
      for (; reaches() < wanted && is_free(blocks_[block].previous);
           block = blocks_[block].previous)
        ++visited_;
      if (reaches() >= wanted) consider(block, end - wanted);
    };
    Index large = pool.free.last();
    for (int rest = kExamined; rest > 0 && large != kNone;
         large = pool.free.previous(large), --rest)
      for (Index const neighbor : {blocks_[large].previous, blocks_[large].next})
        if (is_free(neighbor)) consider_range(neighbor);
    if (best.first == kNone)
      for (auto const& [address, unmapped] : pool.unmapped) consider_range(unmapped);
    return best;
  }

  // The spot at this range; no spot if the range lacks more than `most` bytes.
  Spot measured(Index first, Range place, Size most) const {
    Size bytes = 0;
    for (Index block = first; is_free(block); block = blocks_[block].next) {
      ++visited_;
      bytes += missing(block, place).size();
      if (bytes > most) break;
      if (blocks_[block].block.end() >= place.end) return {first, place, bytes};
    }
    return {kNone, {}, kNever};
  }

  // Reserves twice the capacity, which is always enough for the block and usually for later ones.
  Spot new_reservation(BlockPool& pool, Size wanted) {
    Size const size = 2 * round_up(device().capacity(), page_);
    Address const address = reserve(size);
    if (address == 0) return {kNone, {}, kNever};
    return measured(blocks_.open({address, size, page_}, pool, 0), {address, address + wanted},
                    kNever);
  }

  // Unmaps free pages elsewhere so that the missing pages of the spot can be mapped. With
  // `refused`, it unmaps as many as are missing; otherwise, only as many as exceed the remaining
  // memory of the device or the slack. Returns false, and changes nothing, if there are too few
  // free pages.
  bool make_room(Spot const& spot, Stream stream, bool refused) {
    Size const room = round_down(this->room(), page_);
    Size const shortage = spot.missing - std::min(spot.missing, room);
    if (!returns_memory()) return shortage == 0;
    Size const wanted = refused ? spot.missing : std::max(shortage, excess(spot));
    auto const donors = idle(wanted, spot.place, stream);
    Size bytes = 0;
    for (auto const& [block, pages] : donors) bytes += pages.size();
    Size const spare = std::min(round_down(do_spare(), page_), wanted - bytes);
    if (bytes + spare < shortage) return false;
    if (bytes + spare == 0) return true;
    for (auto const& [block, pages] : donors) unmap_pages(block, pages);
    if (spare > 0) do_give_up(spare);
    bytes += spare;
    ++stitched_;
    moved_ += bytes / page_;
    if (refused || shortage > 0) count_retry();
    return true;
  }

  // The part of the missing bytes that would raise reserved bytes above the slack.
  Size excess(Spot const& spot) const {
    auto const& [current, peak] = counted().allocated;
    Size const load = std::max(peak, current + spot.place.size());
    double const most = static_cast<double>(load) * (1 + slack_);
    Size const reserved = counted().reserved.current + spot.missing;
    if (static_cast<double>(reserved) <= most) return 0;
    return std::min(spot.missing, round_up(reserved - static_cast<Size>(most), page_));
  }

  // Up to `most` bytes of wholly free pages outside `except`: pages of this stream first, smallest
  // free blocks first. If `except` overlaps a free block, only pages after `except` are taken: the
  // block has no pages before it, because find_spot tries the range from the start of a free block
  // first, and a range from its middle never lacks fewer pages.
  std::vector<Idle> idle(Size most, Range except, Stream stream) {
    std::vector<Idle> pages;
    auto const add = [&](BlockPool const& pool) {
      for (Index index = pool.free.fit(page_); index != kNone && most > 0;
           index = pool.free.next(index)) {
        auto [begin, end] = blocks_.pages(index);
        Block const& block = blocks_[index].block;
        if (block.address < except.end && except.begin < block.end())
          begin = end - round_down(end - std::min(end, except.end), page_);
        end = std::min(end, begin + most);
        if (begin >= end) continue;
        pages.push_back({index, {begin, end}});
        most -= end - begin;
      }
    };
    auto const filled = blocks_.filled();
    for (bool const own_stream : {true, false})
      for (auto const* const pools : filled) {
        if ((pools->small.stream == stream) != own_stream) continue;
        add(pools->large);
        add(pools->small);
      }
    return pages;
  }

  // The block in which the spot begins. It differs from `spot.first` if that block has been merged
  // with pages that were unmapped next to it.
  Index first_block(Spot const& spot, BlockPool const& pool) const {
    auto const above = pool.unmapped.upper_bound(spot.place.begin);
    if (above == pool.unmapped.begin()) return spot.first;
    Index const unmapped = std::prev(above)->second;
    return blocks_[unmapped].block.end() > spot.place.begin ? unmapped : spot.first;
  }

  // Maps the missing pages of a range that begins in `first` and returns the free block that
  // contains it, or kNone if the device refuses a page. Pages mapped before the refusal stay mapped
  // and free.
  Index map_missing(Index first, Range place) {
    for (Index block = first;; block = blocks_[block].next) {
      if (Range const pages = missing(block, place); pages.size() > 0) {
        if (!map(pages.begin, pages.size(), page_)) return kNone;
        block = blocks_.remap(block, pages);
      }
      if (blocks_[block].block.end() >= place.end) return block;
    }
  }

  // The pages to be mapped where the range overlaps a free or unmapped block.
  Range missing(Index block, Range place) const {
    Block const& all = blocks_[block].block;
    if (blocks_.facts(block).mapped) return {all.address, all.address};
    Address const start = blocks_.facts(block).reservation->address;
    return {std::max(all.address, start + round_down(place.begin - start, page_)),
            std::min(all.end(), start + round_up(place.end - start, page_))};
  }

  void unmap_pages(Index block, Range pages) {
    unmap(pages.begin, pages.size(), page_);
    blocks_.remap(block, pages);
  }

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

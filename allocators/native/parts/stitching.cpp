// parts/stitching.cpp: pools whose pages are mapped where a block needs them.
// SPDX-License-Identifier: Apache-2.0
#include "parts/stitching.hpp"

#include <algorithm>
#include <string>

namespace allocbench {

Stitching::Stitching(Device& device, Options const& given, Size page, Size small, double slack)
    : Allocator(device), page_(page), small_(small), slack_(slack) {
  if (page_ == 0 || page_ % device.granularity() != 0)
    given.reject("page", "must be a multiple of the device's granularity, " +
                             std::to_string(device.granularity()) + " bytes");
}

Index Stitching::allocate_in_pools(Size wanted, Size requested, Stream stream) {
  if (wanted > device().capacity()) return kNone;
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

Size Stitching::give_up_free_pages(Size most) {
  if (!returns_memory()) return 0;
  Size bytes = 0;
  for (auto const& [block, pages] : idle(most, {}, 0)) {
    bytes += pages.size();
    unmap_pages(block, pages);
  }
  return bytes;
}

void Stitching::trim_pools() {
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

// A free block of at least `wanted` bytes, removed from its pool, or kNone. `refused` is set for
// the second attempt, after the first one found no block.
Index Stitching::obtain(BlockPool& pool, Size wanted, bool refused) {
  Index const fit = pool.free.fit(wanted);
  if (fit == kNone) return stitch(pool, wanted, refused);
  pool.free.remove(fit);
  return fit;
}

Index Stitching::stitch(BlockPool& pool, Size wanted, bool refused) {
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

// Unmaps free pages elsewhere so that the missing pages of the spot can be mapped. With `refused`,
// it unmaps as many as are missing; otherwise, only as many as exceed the remaining memory of the
// device or the slack. Returns false, and changes nothing, if there are too few free pages.
bool Stitching::make_room(Spot const& spot, Stream stream, bool refused) {
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
Size Stitching::excess(Spot const& spot) const {
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
std::vector<Stitching::Idle> Stitching::idle(Size most, Range except, Stream stream) {
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
  for (bool const own_stream : {true, false})
    for (auto& [owner, pools] : blocks_.pools()) {
      if ((owner == stream) != own_stream) continue;
      add(pools.large);
      add(pools.small);
    }
  return pages;
}

void Stitching::unmap_pages(Index block, Range pages) {
  unmap(pages.begin, pages.size(), page_);
  blocks_.remap(block, pages);
}

Counters Stitching::stitching_counters() const {
  return {{"search_steps", blocks_.search_steps() + visited_},
          {"stitched_requests", stitched_},
          {"moved_pages", moved_}};
}

}  // namespace allocbench

// parts/stitching.cpp: pools of pages that are mapped where a block needs them.
// SPDX-License-Identifier: Apache-2.0
#include "parts/stitching.hpp"

#include <algorithm>
#include <string>

namespace allocbench {

Stitching::Stitching(Device& device, Options const& given, Size small, double slack)
    : Allocator(device), page_(given.bytes("page")), small_(small), slack_(slack) {
  if (page_ == 0 || page_ % device.granularity() != 0)
    given.reject("page", "must be a multiple of the device's granularity, " +
                             std::to_string(device.granularity()) + " bytes");
}

Index Stitching::allocate_in_pools(Size wanted, Size requested, Stream stream) {
  if (wanted > device().capacity()) return kNone;
  blocks_.free_waiting();
  PooledBlocks::Pools& pools = blocks_.of(stream);
  Pool& pool = wanted <= small_ ? pools.small : pools.large;
  Index block = obtain(pool, wanted, false);
  if (block == kNone) {
    blocks_.streams_done();
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
  Size bytes = 0;
  for (auto const& [block, pages] : idle(most, {}, 0)) {
    bytes += pages.size();
    unmap_pages(block, pages);
  }
  return bytes;
}

void Stitching::trim_pools() {
  blocks_.streams_done();
  blocks_.free_waiting();
  give_up_free_pages(counted().reserved.current);
  for (auto& [stream, pools] : blocks_.pools())
    for (Pool* pool : {&pools.small, &pools.large})
      for (auto at = pool->unmapped.begin(); at != pool->unmapped.end();) {
        Index const block = (at++)->second;
        if (blocks_.whole(block)) unreserve(blocks_.close(block));
      }
}

// A free block of `wanted` bytes or more, out of its pool, or kNone. `refused`: it is asked for
// again, after there was none.
Index Stitching::obtain(Pool& pool, Size wanted, bool refused) {
  Index const fit = pool.free.fit(wanted);
  if (fit == kNone) return stitch(pool, wanted, refused);
  pool.free.remove(fit);
  return fit;
}

Index Stitching::stitch(Pool& pool, Size wanted, bool refused) {
  Spot spot = find_spot(pool, wanted);
  if (spot.first == kNone) spot = new_space(pool, wanted);
  if (spot.first == kNone || !make_room(spot, pool.stream, refused)) return kNone;
  Index const block = map_missing(first_of(spot, pool), spot.place);
  if (block == kNone) return kNone;
  blocks_.remove(block);
  if (Size const before = spot.place.begin - blocks_[block].block.address; before > 0)
    blocks_.insert(blocks_.split_front(block, before));
  return block;
}

// Unmaps free pages so that those missing can be mapped: all that the device has no room for, or
// as many as are missing after it has refused; else those beyond the slack. False, and nothing
// has changed, when free pages are too few.
bool Stitching::make_room(Spot const& spot, Stream stream, bool refused) {
  Size const room = round_down(this->room(), page_);
  Size const short_of = spot.missing - std::min(spot.missing, room);
  Size const wished = refused ? spot.missing : std::max(short_of, excess(spot));
  auto const found = idle(wished, spot.place, stream);
  Size bytes = 0;
  for (auto const& [block, pages] : found) bytes += pages.size();
  Size const spare = std::min(round_down(do_spare(), page_), wished - bytes);
  if (bytes + spare < short_of) return false;
  if (bytes + spare == 0) return true;
  for (auto const& [block, pages] : found) unmap_pages(block, pages);
  if (spare > 0) do_give_up(spare);
  bytes += spare;
  ++stitched_;
  moved_ += bytes / page_;
  if (refused || short_of > 0) count_retry();
  return true;
}

// How many of the bytes missing would take the reserved ones beyond the slack.
Size Stitching::excess(Spot const& spot) const {
  auto const& [current, peak] = counted().allocated;
  Size const load = std::max(peak, current + spot.place.size());
  double const most = static_cast<double>(load) * (1 + slack_);
  Size const reserved = counted().reserved.current + spot.missing;
  if (static_cast<double>(reserved) <= most) return 0;
  return std::min(spot.missing, round_up(reserved - static_cast<Size>(most), page_));
}

// Wholly free pages outside of a place, up to so many bytes: of this stream first, of the smallest
// free blocks first. Of a block that the place ends in: the pages behind it. It begins in none but
// at its begin: a place that does lacks no more pages, and is found first.
std::vector<Stitching::Idle> Stitching::idle(Size most, Range except, Stream stream) {
  std::vector<Idle> found;
  auto const add = [&](Pool const& pool) {
    for (Index at = pool.free.fit(page_); at != kNone && most > 0; at = pool.free.next(at)) {
      auto [begin, end] = blocks_.pages(at);
      Block const& block = blocks_[at].block;
      if (block.address < except.end && except.begin < block.end())
        begin = end - round_down(end - std::min(end, except.end), page_);
      end = std::min(end, begin + most);
      if (begin >= end) continue;
      found.push_back({at, {begin, end}});
      most -= end - begin;
    }
  };
  for (bool const own : {true, false})
    for (auto& [of, pools] : blocks_.pools()) {
      if ((of == stream) != own) continue;
      add(pools.large);
      add(pools.small);
    }
  return found;
}

void Stitching::unmap_pages(Index block, Range pages) {
  unmap(pages.begin, pages.size(), page_);
  blocks_.remap(block, pages);
}

Counters Stitching::stitching_counters() const {
  return {{"steps", blocks_.steps() + passed_},
          {"stitched_requests", stitched_},
          {"moved_pages", moved_}};
}

}  // namespace allocbench

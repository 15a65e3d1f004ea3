// strategies/caching_expandable.cpp: expandable segments of PyTorch's CUDACachingAllocator.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "strategies/caching.hpp"

namespace allocbench {

// A free block of `wanted` bytes or more, out of its pool: free memory and the unmapped addresses
// after it. What was mapped before the device refused stays, free.
Index Caching::extend(Pool& pool, Size wanted) {
  Index block = find_space(pool, wanted);
  if (block == kNone) return kNone;
  if (!blocks_.facts(block).mapped && !map_front(block, std::min(blocks_.size(block), wanted)))
    return kNone;
  while (blocks_.size(block) < wanted) {
    Index const next = blocks_[block].next;  // unmapped: free neighbours have coalesced
    if (!map_front(next, std::min(wanted - blocks_.size(block), blocks_.size(next)))) return kNone;
    block = next;  // it has taken the block before it over
  }
  blocks_.remove(block);
  return block;
}

// The lowest free block, mapped or not, from which `wanted` bytes are free and at least some of
// them unmapped; of a new expandable segment when there is none.
Index Caching::find_space(Pool& pool, Size wanted) {
  auto const is_free = [&](Index block) { return block != kNone && !blocks_.in_use(block); };
  for (auto const& [address, unmapped] : pool.unmapped) {
    Index const previous = blocks_[unmapped].previous;
    Index const begin = is_free(previous) ? previous : unmapped;
    Size room = 0;
    for (Index at = begin; room < wanted && is_free(at); at = blocks_[at].next)
      room += blocks_.size(at);
    if (room >= wanted) return begin;
  }
  return reserve_space(pool);
}

Index Caching::reserve_space(Pool& pool) {
  Size const page = settings_.page(pool.small);
  Size const capacity = device().capacity();
  Size const size = round_up(capacity + capacity / 8, page);
  Address const address = reserve(size);
  if (address == 0) return kNone;
  Space const& space = spaces_.emplace(address, Space{address, size, page}).first->second;
  Index const block =
      begin_segment(address, size, {.pool = &pool, .space = &space, .mapped = false});
  blocks_.insert(block);
  return block;
}

// Maps the pages of an unmapped block that hold its first `wanted` bytes; they become a free block
// that coalesces.
bool Caching::map_front(Index block, Size wanted) {
  Size const page = blocks_.facts(block).space->page;
  Size const size = round_up(wanted, page);
  if (!map(blocks_[block].block.address, size, page)) return false;
  blocks_.remove(block);
  if (size < blocks_.size(block))
    blocks_.insert(blocks_.split_back(block, blocks_.size(block) - size));
  blocks_.set_mapped(block, true);
  blocks_.coalesce(block);
  blocks_.insert(block);
  return true;
}

// Unmaps the whole pages of a free block. An expandable segment without a mapped page goes back.
void Caching::unmap_pages(Index block) {
  Space const& space = *blocks_.facts(block).space;
  Address const address = blocks_[block].block.address;
  Address const end = blocks_[block].block.end();
  Address const first = space.address + round_up(address - space.address, space.page);
  Address const last = space.address + round_down(end - space.address, space.page);
  if (first >= last) return;
  blocks_.remove(block);
  if (address < first) blocks_.insert(blocks_.split_front(block, first - address));
  if (last < end) blocks_.insert(blocks_.split_back(block, end - last));
  unmap(first, last - first, space.page);
  blocks_.set_mapped(block, false);
  blocks_.coalesce(block);
  if (!blocks_.whole(block)) return blocks_.insert(block);
  blocks_.drop(block);
  unreserve(space.address);
  spaces_.erase(space.address);
}

}  // namespace allocbench

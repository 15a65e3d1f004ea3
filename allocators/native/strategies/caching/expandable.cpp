// strategies/caching/expandable.cpp: expandable segments of PyTorch's CUDACachingAllocator.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "strategies/caching.hpp"

namespace allocbench {

// Takes a free block of `wanted` bytes or more out of its pool, after mapping the pages that it
// lacks. kNone if the device refuses; pages mapped until then stay mapped and free.
Index Caching::extend(BlockPool& pool, Size wanted) {
  Index block = find_extendable(pool, wanted);
  if (block == kNone) return kNone;
  if (!blocks_.facts(block).mapped && !map_front(block, std::min(blocks_.size(block), wanted)))
    return kNone;
  while (blocks_.size(block) < wanted) {
    Index const next = blocks_[block].next;  // unmapped: free neighbors have coalesced
    if (!map_front(next, std::min(wanted - blocks_.size(block), blocks_.size(next)))) return kNone;
    block = next;  // the mapped pages have coalesced with the block before them
  }
  blocks_.remove(block);
  return block;
}

// The lowest free block, mapped or not, that begins a free range of `wanted` bytes which is partly
// unmapped; if no such range exists, the block of a new expandable segment.
Index Caching::find_extendable(BlockPool& pool, Size wanted) {
  auto const is_free = [&](Index block) { return block != kNone && !blocks_.in_use(block); };
  for (auto const& [address, unmapped] : pool.unmapped) {
    Index const previous = blocks_[unmapped].previous;
    Index const begin = is_free(previous) ? previous : unmapped;
    Size room = 0;
    for (Index block = begin; room < wanted && is_free(block); block = blocks_[block].next)
      room += blocks_.size(block);
    if (room >= wanted) return begin;
  }
  return open_reservation(pool);
}

Size Caching::reservation_size(Size page) const {
  Size const capacity = device().capacity();
  return round_up(capacity + capacity / 8, page);
}

Index Caching::open_reservation(BlockPool& pool) {
  Size const page = settings_.page(pool.small);
  Size const size = reservation_size(page);
  Address const address = reserve(size);
  if (address == 0) return kNone;
  return blocks_.open({address, size, page}, pool, next_rank());
}

// Maps the pages that hold the first `wanted` bytes of an unmapped block. They become a free block,
// which coalesces. False if the device refuses.
bool Caching::map_front(Index block, Size wanted) {
  Size const page = blocks_.facts(block).reservation->page;
  Size const size = round_up(wanted, page);
  Address const address = blocks_[block].block.address;
  if (!map(address, size, page)) return false;
  blocks_.remap(block, {address, address + size});
  return true;
}

// Unmaps the pages that lie wholly in a free block, and returns the reservation when none of its
// pages is mapped any more.
void Caching::unmap_pages(Index block) {
  auto const pages = blocks_.pages(block);
  if (pages.size() == 0) return;
  unmap(pages.begin, pages.size(), blocks_.facts(block).reservation->page);
  Index const unmapped = blocks_.remap(block, pages);
  if (blocks_.whole(unmapped)) unreserve(blocks_.close(unmapped));
}

}  // namespace allocbench

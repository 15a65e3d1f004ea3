// parts/pooled_blocks.cpp: blocks in pools by stream and size, some of them without memory.
// SPDX-License-Identifier: Apache-2.0
#include "parts/pooled_blocks.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace allocbench {

void PooledBlocks::add_facts() { facts_.emplace_back(); }

void PooledBlocks::insert_unmapped(Index block) {
  nodes_[block].bin = kNone;
  facts_[block].pool->unmapped.emplace(nodes_[block].block.address, block);
}

void PooledBlocks::remove_unmapped(Index block) {
  facts_[block].pool->unmapped.erase(nodes_[block].block.address);
}

Index PooledBlocks::split_back(Index block, Size size) {
  nodes_[block].block.size -= size;
  Index const back = create_beside(block, nodes_[block].block.end(), size);
  Index const next = nodes_[block].next;
  nodes_[back].previous = block;
  nodes_[back].next = next;
  nodes_[next].previous = back;
  nodes_[block].next = back;
  return back;
}

Index PooledBlocks::open(Reservation const& reservation, BlockPool& pool, std::uint64_t rank) {
  Reservation const& kept = reservations_.emplace(reservation.address, reservation).first->second;
  Facts const facts{.pool = &pool, .reservation = &kept, .mapped = false};
  Index const block = create(reservation.address, reservation.size, facts, rank);
  insert(block);
  return block;
}

Address PooledBlocks::close(Index block) {
  Address const address = nodes_[block].block.address;
  remove(block);
  drop(block);
  reservations_.erase(address);
  return address;
}

PooledBlocks::Range PooledBlocks::pages(Index block) const {
  auto const& [start, size, page] = *facts_[block].reservation;
  Block const& all = nodes_[block].block;
  Address const begin = start + round_up(all.address - start, page);
  return {begin, std::max(begin, start + round_down(all.end() - start, page))};
}

Index PooledBlocks::remap(Index block, Range pages) {
  Address const begin = nodes_[block].block.address;
  Address const end = nodes_[block].block.end();
  remove(block);
  if (begin < pages.begin) insert(split_front(block, pages.begin - begin));
  if (pages.end < end) insert(split_back(block, end - pages.end));
  facts_[block].mapped = !facts_[block].mapped;
  coalesce(block);
  insert(block);
  return block;
}

void PooledBlocks::carve(Index free, std::vector<Block> const& allocated) {
  remove(free);
  Address const end = nodes_[free].block.end();
  for (Block const& block : allocated) {
    if (Size const before = block.address - nodes_[free].block.address; before > 0)
      insert(split_front(free, before));
    allocate(block.end() < end ? split_front(free, block.size) : free, block.requested);
  }
  if (!nodes_[free].block.allocated()) insert(free);
}

void PooledBlocks::free_done() {
  auto const end = waiting_.begin() + static_cast<std::ptrdiff_t>(std::exchange(done_, 0));
  for (auto block = waiting_.begin(); block != end; ++block) {
    facts_[*block].waits = false;
    free(*block);
  }
  waiting_.erase(waiting_.begin(), end);
}

void PooledBlocks::free_all_deferred() {
  for (Index const block : std::exchange(deferred_, {})) {
    facts_[block].waits = false;
    free(block);
  }
}

void PooledBlocks::free_waiting_of(PoolId pool) {
  std::vector<Index> const waiting = std::exchange(waiting_, {});
  std::size_t const done = std::exchange(done_, 0);
  std::vector<Index> freed;
  for (std::size_t n = 0; n < waiting.size(); ++n) {
    bool const of_pool = pool_of(facts_[waiting[n]].pool->stream) == pool;
    (of_pool ? freed : waiting_).push_back(waiting[n]);
    if (!of_pool && n < done) ++done_;
  }
  for (Index const block : freed) {
    facts_[block].waits = false;
    free(block);
  }
}

}  // namespace allocbench

// parts/pooled_blocks.cpp: blocks in pools by stream and size, some of them without memory.
// SPDX-License-Identifier: Apache-2.0
#include "parts/pooled_blocks.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "core/errors.hpp"

namespace allocbench {

void PooledBlocks::add_facts() { facts_.emplace_back(); }

void PooledBlocks::touch(Stream stream) {
  StreamPools& pools = pools_.find(stream)->second;
  pools.small.touched = pools.large.touched = true;
  touched_.push_back(&pools);
}

void PooledBlocks::look_at(StreamPools& pools) const {
  filled_.erase({pools.largest, &pools});
  pools.largest = std::max(pools.small.free.largest(), pools.large.free.largest());
  if (pools.largest > 0) filled_.emplace(pools.largest, &pools);
}

void PooledBlocks::look_at_touched() const {
  for (StreamPools* const pools : touched_) {
    pools->small.touched = pools->large.touched = false;
    look_at(*pools);
    if (!std::exchange(pools->changed, true))
      changed_[pool_of(pools->small.stream) != 0].push_back(pools);
  }
  touched_.clear();
}

std::vector<PooledBlocks::StreamPools*> PooledBlocks::filled() {
  look_at_touched();
  std::vector<StreamPools*> found;
  for (auto const& [largest, pools] : filled_) found.push_back(pools);
  for (StreamPools* const pools : found) look_at(*pools);
  std::erase_if(found, [](StreamPools const* pools) { return pools->largest == 0; });
  std::ranges::sort(found, {}, [](StreamPools const* pools) { return pools->small.stream; });
  return found;
}

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

Size PooledBlocks::largest_free() const {
  look_at_touched();
  for (bool changed = true; changed && !filled_.empty();) {
    auto const top = *filled_.rbegin();
    look_at(*top.second);
    changed = filled_.empty() || *filled_.rbegin() != top;
  }
  Size largest = filled_.empty() ? 0 : filled_.rbegin()->first;
  for (auto const* waiting : {&waiting_, &deferred_})
    for (Index const block : *waiting) largest = std::max(largest, size(block));
  return largest;
}

std::uint64_t PooledBlocks::search_steps() const {
  std::uint64_t total = allocated_.search_steps();
  for (auto const& [stream, pools] : pools_)
    total += pools.small.free.search_steps() + pools.large.free.search_steps();
  return total;
}

std::vector<Index> PooledBlocks::mapped() const {
  std::vector<Index> all = waiting_;
  all.insert(all.end(), deferred_.begin(), deferred_.end());
  allocated_.for_each([&](Address, Index block) { all.push_back(block); });
  for (auto const& [stream, pools] : pools_)
    for (BlockPool const* pool : {&pools.small, &pools.large})
      for (Index block = pool->free.first(); block != kNone; block = pool->free.next(block))
        all.push_back(block);
  std::ranges::sort(all, {}, [&](Index block) { return nodes_[block].block.address; });
  return all;
}

std::vector<Segment> PooledBlocks::snapshot() const {
  std::vector<Segment> all;
  for (Index const block : mapped()) {
    Index const previous = nodes_[block].previous;
    if (previous == kNone || !facts_[previous].mapped)
      all.push_back({nodes_[block].block.address, 0, {}});
    all.back().size += size(block);
    all.back().blocks.push_back(nodes_[block].block);
  }
  return all;
}

void PooledBlocks::check() const {
  std::size_t count = 0;
  std::map<Reservation const*, Size> covered;
  for (Index const block : mapped()) {
    require(facts_[block].mapped, "a block that is allocated or free is mapped");
    covered[facts_[block].reservation] += size(block);
    check_neighbors(block);
    if (!nodes_[block].block.allocated()) continue;
    require(!facts_[block].waits, "an allocated block waits for no stream");
    require(nodes_[block].bin == kNone, "an allocated block is in no bin");
    ++count;
    require(allocated_.find(nodes_[block].block.address) == block,
            "an allocated block is in the address map");
  }
  require(count == allocated_.size(), "the address map contains only allocated blocks");
  for (Index const block : waiting_)
    require(facts_[block].waits && nodes_[block].bin == kNone,
            "a block in the waiting list is marked as waiting and is in no bin");
  for (auto const& [stream, pools] : pools_)
    for (BlockPool const* pool : {&pools.small, &pools.large}) {
      for (Index block = pool->free.first(); block != kNone; block = pool->free.next(block))
        require(facts_[block].pool == pool && !facts_[block].waits && pool->free.contains(block),
                "a free block is in the pool of its segment");
      for (auto const& [address, block] : pool->unmapped) {
        require(nodes_[block].block.address == address && facts_[block].pool == pool &&
                    !facts_[block].mapped && !in_use(block) && nodes_[block].bin == kNone,
                "an unmapped block is found by address in the pool of its segment");
        check_neighbors(block);
        covered[facts_[block].reservation] += size(block);
      }
    }
  for (auto const& [address, reservation] : reservations_)
    require(covered[&reservation] == reservation.size,
            "the mapped and the unmapped blocks of a reservation cover it");
}

void PooledBlocks::check_neighbors(Index block) const {
  Facts const& facts = facts_[block];
  Index const next = nodes_[block].next;
  Index const previous = nodes_[block].previous;
  require(previous == kNone || nodes_[previous].next == block,
          "neighboring blocks are linked both ways");
  if (facts.reservation != nullptr && !facts.mapped) {
    auto const& [address, size, page] = *facts.reservation;
    require(
        (nodes_[block].block.address - address) % page == 0 && nodes_[block].block.size % page == 0,
        "an unmapped block begins and ends at pages");
    require(nodes_[block].block.end() <= address + size && nodes_[block].block.address >= address,
            "an unmapped block is inside its reservation");
  }
  if (next == kNone) return;
  require(nodes_[next].previous == block && nodes_[next].block.address == nodes_[block].block.end(),
          "neighboring blocks are linked both ways");
  require(facts_[next].pool == facts.pool && facts_[next].reservation == facts.reservation,
          "the blocks of a segment share its pool");
  require(in_use(block) || in_use(next) || facts_[next].mapped != facts.mapped,
          "free neighbors have coalesced");
}

}  // namespace allocbench

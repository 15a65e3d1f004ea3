// strategies/caching_blocks.cpp: the blocks of PyTorch's allocator, by stream and by pool.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/caching_blocks.hpp"

#include <cstddef>
#include <utility>

namespace allocbench {

Index CachingBlocks::create(Address address, Size size, Facts const& facts, std::uint64_t rank) {
  Index const block = nodes_.create(address, size);
  nodes_[block].rank = rank;
  if (facts_.size() <= block) facts_.resize(block + 1);
  facts_[block] = facts;
  return block;
}

Index CachingBlocks::create_beside(Index block, Address address, Size size) {
  return create(address, size, Facts(facts_[block]), rank_each_ ? next_rank() : nodes_[block].rank);
}

Index CachingBlocks::split_front(Index block, Size size) {
  Index const front = create_beside(block, nodes_[block].block.address, size);
  Index const previous = nodes_[block].previous;
  nodes_[front].previous = previous;
  nodes_[front].next = block;
  if (previous != kNone) nodes_[previous].next = front;
  nodes_[block].previous = front;
  nodes_[block].block.address += size;
  nodes_[block].block.size -= size;
  return front;
}

Index CachingBlocks::split_back(Index block, Size size) {
  nodes_[block].block.size -= size;
  Index const back = create_beside(block, nodes_[block].block.end(), size);
  Index const next = nodes_[block].next;
  nodes_[back].previous = block;
  nodes_[back].next = next;
  if (next != kNone) nodes_[next].previous = back;
  nodes_[block].next = back;
  return back;
}

void CachingBlocks::coalesce(Index block) {
  auto const joins = [&](Index neighbour) {
    return neighbour != kNone && !in_use(neighbour) &&
           facts_[neighbour].mapped == facts_[block].mapped;
  };
  if (Index const previous = nodes_[block].previous; joins(previous)) {
    nodes_[block].block.address = nodes_[previous].block.address;
    nodes_[block].previous = nodes_[previous].previous;
    if (nodes_[block].previous != kNone) nodes_[nodes_[block].previous].next = block;
    absorb(block, previous);
  }
  if (Index const next = nodes_[block].next; joins(next)) {
    nodes_[block].next = nodes_[next].next;
    if (nodes_[block].next != kNone) nodes_[nodes_[block].next].previous = block;
    absorb(block, next);
  }
}

// Its neighbours are the block's already.
void CachingBlocks::absorb(Index block, Index neighbour) {
  remove(neighbour);
  nodes_[block].block.size += size(neighbour);
  nodes_.drop(neighbour);
}

void CachingBlocks::insert(Index block) {
  Facts& facts = facts_[block];
  facts.free_since = now_;
  if (facts.mapped)
    facts.pool->free.insert(block);
  else
    facts.pool->unmapped.emplace(nodes_[block].block.address, block);
}

void CachingBlocks::remove(Index block) {
  Facts const& facts = facts_[block];
  if (facts.mapped)
    facts.pool->free.remove(block);
  else
    facts.pool->unmapped.erase(nodes_[block].block.address);
}

Block CachingBlocks::allocate(Index block, Size requested) {
  nodes_[block].block.requested = requested;
  allocated_.insert(nodes_[block].block.address, block);
  return nodes_[block].block;
}

Block CachingBlocks::deallocate(Address address, Stream stream) {
  Index const block = allocated_.erase(address);
  if (block == kNone) return {};
  Block const given = nodes_[block].block;
  nodes_[block].block.requested = 0;
  facts_[block].waits = stream != facts_[block].pool->stream;
  if (facts_[block].waits)
    waiting_.push_back(block);
  else
    free(block);
  return given;
}

void CachingBlocks::free_done() {
  auto const end = waiting_.begin() + static_cast<std::ptrdiff_t>(std::exchange(done_, 0));
  for (auto block = waiting_.begin(); block != end; ++block) {
    facts_[*block].waits = false;
    free(*block);
  }
  waiting_.erase(waiting_.begin(), end);
}

void CachingBlocks::free(Index block) {
  coalesce(block);
  insert(block);
}

}  // namespace allocbench

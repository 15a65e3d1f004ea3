// strategies/rmm_pool.cpp: RMM's pool, best fit with coalescing per stream.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/rmm_pool.hpp"

#include <algorithm>

#include "core/errors.hpp"

namespace allocbench {

RmmPool::RmmPool(Device& device, Options const& given)
    : Allocator(device),
      default_initial_(!given.given("initial_pool_size")),
      initial_(default_initial_ ? 0 : given.bytes("initial_pool_size")),
      maximum_(given.given("maximum_pool_size") ? given.bytes("maximum_pool_size") : 0) {
  for (auto const name : {"initial_pool_size", "maximum_pool_size"})
    if (given.given(name) && given.bytes(name) % kAlignment != 0)
      given.reject(name, "must be a multiple of 256 bytes");
  if (given.given("maximum_pool_size") && maximum_ == 0)
    given.reject("maximum_pool_size", "must be at least 256 bytes");
  if (maximum_ != 0 && initial_ > maximum_)
    given.reject("initial_pool_size", "must not exceed maximum_pool_size");
}

void RmmPool::start() {
  started_ = true;
  if (default_initial_) {
    initial_ = round_down(room() / 2, kAlignment);
    if (maximum_ != 0) initial_ = std::min(initial_, maximum_);
  }
  if (Address const first = initial_ == 0 ? 0 : acquire(initial_); first != 0)
    add(first, initial_, list_of(0));
}

Block RmmPool::do_allocate(Size requested, Stream stream) {
  Size const size = round_up(requested, kAlignment);
  if (size > device().capacity()) return {};
  if (!started_) start();
  List& own = list_of(stream);
  auto [list, block] = lists_.choose(size, own);
  if (block == kNone) block = grow(size, own);
  if (block == kNone) return {};
  list.remove(block);
  if (Size const whole = nodes_[block].block.size; size < whole) {
    Index const rest = nodes_.create(nodes_[block].block.address + size, whole - size);
    Index const next = nodes_[block].next;
    nodes_[rest].previous = block;
    nodes_[rest].next = next;
    if (next != kNone) nodes_[next].previous = rest;
    nodes_[block].next = rest;
    nodes_[block].block.size = size;
    list.insert(rest);
  }
  nodes_[block].block.requested = requested;
  allocated_.insert(nodes_[block].block.address, block);
  return nodes_[block].block;
}

Block RmmPool::do_deallocate(Address address, Stream stream) {
  Index const block = allocated_.erase(address);
  if (block == kNone) return {};
  Block const freed = nodes_[block].block;
  nodes_[block].block.requested = 0;
  list_of(stream).insert(block);
  return freed;
}

// Adds a segment as one free block.
Index RmmPool::add(Address address, Size size, List& list) {
  Index const block = nodes_.create(address, size);
  segments_.emplace(address, Extent{size, block});
  list.insert(block);
  return block;
}

// Gets another segment of at least `size` bytes; kNone if the device or the maximum refuses it.
Index RmmPool::grow(Size size, List& list) {
  Size const pool = counted().reserved.current;
  Size wanted = std::max(size, pool);
  if (maximum_ > 0) {
    Size const room = round_up(maximum_ - pool, kAlignment);
    if (size > room) return kNone;
    wanted = std::max(size, room / 2);
  }
  for (;; wanted = std::max(size, wanted / 2)) {
    if (Address const address = acquire(wanted); address != 0) return add(address, wanted, list);
    if (wanted == size) return kNone;
  }
}

void RmmPool::do_trim() {
  if (!returns_memory()) return;
  std::erase_if(segments_, [this](auto const& entry) {
    auto const& [address, extent] = entry;
    for (Index block = extent.first; block != kNone; block = nodes_[block].next)
      if (nodes_[block].block.allocated()) return false;
    for (Index block = extent.first, next; block != kNone; block = next) {
      next = nodes_[block].next;
      holder_[block]->remove(block);
      nodes_.drop(block);
    }
    release(address, extent.size);
    return true;
  });
}

void RmmPool::List::insert(Index block) {
  if (pool_.holder_.size() <= block) pool_.holder_.resize(block + 1);
  if (Index const next = pool_.nodes_[block].next; next != kNone && pool_.holder_[next] == this) {
    remove(next);
    pool_.merge_with_next(block);
  }
  Index const previous = pool_.nodes_[block].previous;
  if (previous != kNone && pool_.holder_[previous] == this) {
    remove(previous);
    block = pool_.merge_with_next(previous);
  }
  pool_.holder_[block] = this;
  free_.insert(block);
}

void RmmPool::List::remove(Index block) {
  pool_.holder_[block] = nullptr;
  free_.remove(block);
}

void RmmPool::List::absorb(List& other) {
  for (Index block; (block = other.free_.first()) != kNone;) {
    other.remove(block);
    insert(block);
  }
}

// Both blocks are free and in no list. The lower one stays.
Index RmmPool::merge_with_next(Index block) {
  Index const gone = nodes_[block].next;
  nodes_[block].block.size += nodes_[gone].block.size;
  Index const beyond = nodes_[gone].next;
  nodes_[block].next = beyond;
  if (beyond != kNone) nodes_[beyond].previous = block;
  nodes_.drop(gone);
  return block;
}

std::vector<Segment> RmmPool::do_snapshot() const {
  std::vector<Segment> all;
  for (auto const& [address, extent] : segments_) {
    Segment& segment = all.emplace_back(Segment{address, extent.size, {}});
    for (Index block = extent.first; block != kNone; block = nodes_[block].next)
      segment.blocks.push_back(nodes_[block].block);
  }
  return all;
}

Size RmmPool::do_largest_free() const {
  Size largest = 0;
  lists_.for_each([&](List const& list) { largest = std::max(largest, list.index().largest()); });
  return largest;
}

void RmmPool::do_check() const {
  std::size_t allocated = 0;
  for (auto const& [address, extent] : segments_) {
    Address position = address;
    for (Index block = extent.first, before = kNone; block != kNone;
         before = block, block = nodes_[block].next) {
      Node const& node = nodes_[block];
      require(node.block.address == position, "the blocks of a segment tile it");
      require(node.previous == before, "neighbors know each other");
      if (node.block.allocated()) {
        ++allocated;
        require(allocated_.find(position) == block, "an allocated block is found by its address");
      } else {
        List const* const list = holder_[block];
        require(list != nullptr && list->index().contains(block), "a free block is in a list");
        require(before == kNone || holder_[before] != list || nodes_[before].block.allocated(),
                "free neighbors in the same list are coalesced");
      }
      position = node.block.end();
    }
    require(position == address + extent.size, "the blocks of a segment tile it");
  }
  require(allocated == allocated_.size(), "every allocated block is in a segment");
}

Counters RmmPool::do_counters() const {
  std::uint64_t steps = allocated_.search_steps();
  lists_.for_each([&](List const& list) { steps += list.index().search_steps(); });
  return {{"search_steps", steps}};
}

}  // namespace allocbench

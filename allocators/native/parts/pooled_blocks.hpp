// parts/pooled_blocks.hpp: blocks in pools by stream and size, some of them without memory.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/types.hpp"
#include "parts/address_map.hpp"
#include "parts/free_index.hpp"
#include "parts/node.hpp"

namespace allocbench {

// Keeps track of blocks and their neighbors. A block is allocated, free in a pool, or unmapped in
// a pool: unmapped blocks are addresses of a reservation without memory. A block that is freed on a
// stream other than its own may still be in use there, so it waits, neither allocated nor in its
// pool, until that stream has been synchronized. This class does not decide which block to use and
// never calls the device.
class PooledBlocks {
 public:
  struct BlockPool {
    BlockPool(Nodes& nodes, Stream of, bool is_small) : free(nodes), stream(of), small(is_small) {}
    FreeIndex free;
    std::map<Address, Index> unmapped;
    Stream stream;
    bool small;
    bool touched = false;  // in `touched_`
  };
  struct StreamPools {  // of one stream
    StreamPools(Nodes& nodes, Stream of) : small(nodes, of, true), large(nodes, of, false) {}
    BlockPool small;
    BlockPool large;
    Size largest = 0;      // free block, when the pools were last looked at
    bool changed = false;  // in `changed_`
  };
  struct Reservation {
    Address address;
    Size size;
    Size page;
  };
  struct Range {
    Address begin;
    Address end;
    Size size() const { return end - begin; }
  };
  struct Facts {  // what is known of a block apart from its address and neighbors
    BlockPool* pool = nullptr;
    Reservation const* reservation = nullptr;  // null: in an ordinary segment
    bool mapped = true;
    bool waits = false;
    std::uint64_t free_since = 0;  // number of the tick
  };

  struct Freed {
    Block block = {};
    Index index = kNone;
  };

  // With `rank_each`, a block created by a split ranks after all earlier blocks; otherwise it
  // inherits the rank of the block that is split.
  explicit PooledBlocks(bool rank_each) : rank_each_(rank_each) {}
  PooledBlocks(PooledBlocks const&) = delete;
  PooledBlocks& operator=(PooledBlocks const&) = delete;

  StreamPools& of(Stream stream) {
    if (last_ == nullptr || last_->small.stream != stream)
      last_ = &pools_.try_emplace(stream, nodes_, stream).first->second;
    return *last_;
  }

  std::map<Stream, StreamPools>& pools() { return pools_; }
  // Those with free blocks, in order of stream. There may be thousands of pools without one.
  std::vector<StreamPools*> filled();
  // Those, of private pools or outside of them, for which `which(pools)` is true and that got free
  // blocks since this last returned them, in order of stream: only they can have more to give back
  // than they had then.
  template <class Which>
  std::vector<StreamPools*> changed(bool in_private_pools, Which which) {
    look_at_touched();
    auto& all = changed_[in_private_pools];
    auto const others = std::partition(all.begin(), all.end(), which);
    std::vector<StreamPools*> found(all.begin(), others);
    all.erase(all.begin(), others);
    for (StreamPools* const pools : found) pools->changed = false;
    std::ranges::sort(found, {}, [](StreamPools const* pools) { return pools->small.stream; });
    return found;
  }
  Node const& operator[](Index block) const { return nodes_[block]; }
  Size size(Index block) const { return nodes_[block].block.size; }
  Facts const& facts(Index block) const { return facts_[block]; }
  bool in_use(Index block) const { return nodes_[block].block.allocated() || facts_[block].waits; }
  bool whole(Index block) const {  // a segment or reservation of its own
    return nodes_[block].previous == kNone && nodes_[block].next == kNone;
  }

  std::uint64_t next_rank() { return ++ranks_; }
  void tick() { ++now_; }
  std::uint64_t age(Index block) const { return now_ - facts_[block].free_since; }

  // After a split, the new block and the remaining one are in no pool.
  Index create(Address address, Size size, Facts const& facts, std::uint64_t rank) {
    Index const block = nodes_.create(address, size);
    nodes_[block].rank = rank;
    if (facts_.size() <= block) [[unlikely]]
      add_facts();
    facts_[block] = facts;
    return block;
  }

  // the new block is the first `size` bytes
  Index split_front(Index block, Size size) {
    Index const front = create_beside(block, nodes_[block].block.address, size);
    Index const previous = nodes_[block].previous;
    nodes_[front].previous = previous;
    nodes_[front].next = block;
    nodes_[previous].next = front;
    nodes_[block].previous = front;
    nodes_[block].block.address += size;
    nodes_[block].block.size -= size;
    return front;
  }

  // Allocates these blocks, in order of address, inside a free block that contains them all.
  void carve(Index free, std::vector<Block> const& allocated);

  // Adds a reservation to the pool as one unmapped block.
  Index open(Reservation const& reservation, BlockPool& pool, std::uint64_t rank);
  // Removes a reservation that is one `whole` block and returns its address.
  Address close(Index block);

  // The pages of its reservation that are entirely inside a free or unmapped block; size 0 if none.
  Range pages(Index block) const;
  // Marks these pages of a free block as unmapped, or of an unmapped block as mapped, and coalesces
  // them. Returns the block that contains them.
  Index remap(Index block, Range pages);

  // Adds a free or unmapped block to its pool, or removes it.
  void insert(Index block) {
    Facts& facts = facts_[block];
    facts.free_since = now_;
    if (facts.mapped) [[likely]] {
      facts.pool->free.insert(block);
      if (!facts.pool->touched) [[unlikely]]
        touch(facts.pool->stream);
    } else {
      insert_unmapped(block);
    }
  }

  void remove(Index block) {
    Facts const& facts = facts_[block];
    if (facts.mapped) [[likely]]
      facts.pool->free.remove(block);
    else
      remove_unmapped(block);
  }

  void drop(Index block) { nodes_.drop(block); }

  // Allocates a free block that is in no pool.
  Block allocate(Index block, Size requested) {
    auto& [address, size, of_request] = nodes_[block].block;
    of_request = requested;
    nodes_[block].bin = kNone;
    allocated_.insert(address, block);
    return {address, size, requested};
  }

  // Returns the block as it was allocated, with its index; size 0 if none is allocated at the
  // address.
  // `defer`: a block used on another stream waits for free_deferred, not for streams_done.
  Freed deallocate(Address address, Stream stream, bool defer = false) {
    Index const block = allocated_.erase(address);
    if (block == kNone) return {};
    Freed const given{nodes_[block].block, block};
    nodes_[block].block.requested = 0;
    Facts& facts = facts_[block];
    facts.waits = without_pool(stream) != without_pool(facts.pool->stream);
    if (facts.waits) [[unlikely]]
      (defer ? deferred_ : waiting_).push_back(block);
    else
      free(block);
    return given;
  }

  // All streams have been synchronized, so the blocks waiting now can be freed by `free_waiting`.
  void streams_done() { done_ = waiting_.size(); }
  void free_waiting() {
    if (done_ > 0) free_done();
  }

  void free_deferred() {
    if (!deferred_.empty()) free_all_deferred();
  }

  void free_waiting_of(PoolId pool);  // all of them, as if its streams had been synchronized

  Size largest_free() const;
  std::uint64_t search_steps() const;
  std::vector<Segment> snapshot() const;  // a reservation appears as one segment per mapped range
  void check() const;                     // throws InvariantViolation

 private:
  Index create_beside(Index block, Address address, Size size) {
    return create(address, size, Facts(facts_[block]),
                  rank_each_ ? next_rank() : nodes_[block].rank);
  }

  Index split_back(Index block, Size size);  // the new block is the last `size` bytes
  // Merges a block, in no pool, with neighbors of the same state (free or waiting, mapped or not).
  void coalesce(Index block) {
    Facts const& facts = facts_[block];  // neighbors are in the same pool
    auto const joins = [&](Index neighbor) {
      bool const in_bin = nodes_[neighbor].bin != kNone;  // free and mapped
      if (facts.mapped) [[likely]]
        return in_bin;
      return !in_bin && !in_use(neighbor);
    };
    auto const absorb = [&](Index neighbor) {
      if (facts.mapped) [[likely]]
        facts.pool->free.remove(neighbor);
      else
        remove_unmapped(neighbor);
      nodes_[block].block.size += size(neighbor);
      nodes_.drop(neighbor);
    };
    if (Index const previous = nodes_[block].previous; joins(previous)) {
      nodes_[block].block.address = nodes_[previous].block.address;
      nodes_[block].previous = nodes_[previous].previous;
      nodes_[nodes_[block].previous].next = block;
      absorb(previous);
    }
    if (Index const next = nodes_[block].next; joins(next)) {
      nodes_[block].next = nodes_[next].next;
      nodes_[nodes_[block].next].previous = block;
      absorb(next);
    }
  }

  void free(Index block) {
    coalesce(block);
    insert(block);
  }

  void insert_unmapped(Index block);
  void remove_unmapped(Index block);
  void add_facts();
  void touch(Stream stream);
  void look_at(StreamPools& pools) const;
  void look_at_touched() const;
  void free_done();
  void free_all_deferred();
  std::vector<Index> mapped() const;  // in order of address
  void check_neighbors(Index block) const;

  bool rank_each_;
  Nodes nodes_;
  LargeArray<Facts> facts_;  // by node
  AddressMap allocated_;
  std::map<Stream, StreamPools> pools_;  // none is ever removed
  StreamPools* last_ = nullptr;          // the last result of `of`
  // The pools that got free blocks since they were last looked at, and those that had some then, by
  // the largest. Blocks may have left them since.
  mutable std::vector<StreamPools*> touched_;
  mutable std::set<std::pair<Size, StreamPools*>> filled_;
  // Those that got free blocks since `changed` returned them: outside of and in private pools.
  mutable std::array<std::vector<StreamPools*>, 2> changed_;
  std::map<Address, Reservation> reservations_;
  std::vector<Index> waiting_;  // in the order of their frees
  std::vector<Index> deferred_;
  std::size_t done_ = 0;  // the number at the front that no longer has to wait
  std::uint64_t ranks_ = 0;
  std::uint64_t now_ = 0;
};

}  // namespace allocbench

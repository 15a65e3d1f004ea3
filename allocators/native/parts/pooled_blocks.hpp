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

#include "core/errors.hpp"
#include "parts/address_map.hpp"
#include "parts/free_index.hpp"

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
  std::vector<StreamPools*> filled() {
    look_at_touched();
    std::vector<StreamPools*> found;
    for (auto const& [largest, pools] : filled_) found.push_back(pools);
    for (StreamPools* const pools : found) look_at(*pools);
    std::erase_if(found, [](StreamPools const* pools) { return pools->largest == 0; });
    std::ranges::sort(found, {}, [](StreamPools const* pools) { return pools->small.stream; });
    return found;
  }

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
    nodes_.link_before(block, front);
    nodes_[block].block.address += size;
    nodes_[block].block.size -= size;
    return front;
  }

  // Allocates these blocks, in order of address, inside a free block that contains them all.
  void carve(Index free, std::vector<Block> const& allocated) {
    remove(free);
    Address const end = nodes_[free].block.end();
    for (Block const& block : allocated) {
      if (Size const before = block.address - nodes_[free].block.address; before > 0)
        insert(split_front(free, before));
      allocate(block.end() < end ? split_front(free, block.size) : free, block.requested);
    }
    if (!nodes_[free].block.allocated()) insert(free);
  }

  // Adds a reservation to the pool as one unmapped block.
  Index open(Reservation const& reservation, BlockPool& pool, std::uint64_t rank) {
    Reservation const& kept = reservations_.emplace(reservation.address, reservation).first->second;
    Facts const facts{.pool = &pool, .reservation = &kept, .mapped = false};
    Index const block = create(reservation.address, reservation.size, facts, rank);
    insert(block);
    return block;
  }

  // Removes a reservation that is one `whole` block and returns its address.
  Address close(Index block) {
    Address const address = nodes_[block].block.address;
    remove(block);
    drop(block);
    reservations_.erase(address);
    return address;
  }

  // The pages of its reservation that are entirely inside a free or unmapped block; size 0 if none.
  Range pages(Index block) const {
    auto const& [start, size, page] = *facts_[block].reservation;
    Block const& all = nodes_[block].block;
    Address const begin = start + round_up(all.address - start, page);
    return {begin, std::max(begin, start + round_down(all.end() - start, page))};
  }
  // Marks these pages of a free block as unmapped, or of an unmapped block as mapped, and coalesces
  // them. Returns the block that contains them.
  Index remap(Index block, Range pages) {
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

  // all of them, as if its streams had been synchronized
  void free_waiting_of(PoolId pool) {
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

  Size largest_free() const {
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

  std::uint64_t search_steps() const {
    std::uint64_t total = allocated_.search_steps();
    for (auto const& [stream, pools] : pools_)
      total += pools.small.free.search_steps() + pools.large.free.search_steps();
    return total;
  }
  // a reservation appears as one segment per mapped range
  std::vector<Segment> snapshot() const {
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

  // throws InvariantViolation
  void check() const {
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

 private:
  Index create_beside(Index block, Address address, Size size) {
    return create(address, size, Facts(facts_[block]),
                  rank_each_ ? next_rank() : nodes_[block].rank);
  }

  // the new block is the last `size` bytes
  Index split_back(Index block, Size size) {
    nodes_[block].block.size -= size;
    Index const back = create_beside(block, nodes_[block].block.end(), size);
    nodes_.link_after(block, back);
    return back;
  }
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

  [[gnu::noinline]] void insert_unmapped(Index block) {
    nodes_[block].bin = kNone;
    facts_[block].pool->unmapped.emplace(nodes_[block].block.address, block);
  }
  [[gnu::noinline]] void remove_unmapped(Index block) {
    facts_[block].pool->unmapped.erase(nodes_[block].block.address);
  }
  [[gnu::noinline]] void add_facts() { facts_.emplace_back(); }
  [[gnu::noinline]] void touch(Stream stream) {
    StreamPools& pools = pools_.find(stream)->second;
    pools.small.touched = pools.large.touched = true;
    touched_.push_back(&pools);
  }
  void look_at(StreamPools& pools) const {
    filled_.erase({pools.largest, &pools});
    pools.largest = std::max(pools.small.free.largest(), pools.large.free.largest());
    if (pools.largest > 0) filled_.emplace(pools.largest, &pools);
  }
  void look_at_touched() const {
    for (StreamPools* const pools : touched_) {
      pools->small.touched = pools->large.touched = false;
      look_at(*pools);
      if (!std::exchange(pools->changed, true))
        changed_[pool_of(pools->small.stream) != 0].push_back(pools);
    }
    touched_.clear();
  }

  [[gnu::noinline]] void free_done() {
    auto const end = waiting_.begin() + static_cast<std::ptrdiff_t>(std::exchange(done_, 0));
    for (auto block = waiting_.begin(); block != end; ++block) {
      facts_[*block].waits = false;
      free(*block);
    }
    waiting_.erase(waiting_.begin(), end);
  }

  [[gnu::noinline]] void free_all_deferred() {
    for (Index const block : std::exchange(deferred_, {})) {
      facts_[block].waits = false;
      free(block);
    }
  }
  // in order of address
  std::vector<Index> mapped() const {
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

  void check_neighbors(Index block) const {
    Facts const& facts = facts_[block];
    Index const next = nodes_[block].next;
    Index const previous = nodes_[block].previous;
    require(previous == kNone || nodes_[previous].next == block,
            "neighboring blocks are linked both ways");
    if (facts.reservation != nullptr && !facts.mapped) {
      auto const& [address, size, page] = *facts.reservation;
      require((nodes_[block].block.address - address) % page == 0 &&
                  nodes_[block].block.size % page == 0,
              "an unmapped block begins and ends at pages");
      require(nodes_[block].block.end() <= address + size && nodes_[block].block.address >= address,
              "an unmapped block is inside its reservation");
    }
    if (next == kNone) return;
    require(
        nodes_[next].previous == block && nodes_[next].block.address == nodes_[block].block.end(),
        "neighboring blocks are linked both ways");
    require(facts_[next].pool == facts.pool && facts_[next].reservation == facts.reservation,
            "the blocks of a segment share its pool");
    require(in_use(block) || in_use(next) || facts_[next].mapped != facts.mapped,
            "free neighbors have coalesced");
  }

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

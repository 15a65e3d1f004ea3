// parts/pooled_blocks.hpp: blocks in pools by stream and size, some of them addresses alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/types.hpp"
#include "parts/address_map.hpp"
#include "parts/free_index.hpp"
#include "parts/node.hpp"

namespace allocbench {

// What lies where: blocks with their neighbours, allocated, free in a pool, or unmapped in it. A
// block is unmapped where a space, that is a reservation, has addresses but no memory. A block
// that is freed on another stream than its own may still be used there: it waits, neither
// allocated nor in its pool, until that stream has been waited for. Nothing here decides which
// block is taken, and nothing calls the device.
class PooledBlocks {
 public:
  struct Pool {
    Pool(Nodes& nodes, Stream of, bool is_small) : free(nodes), stream(of), small(is_small) {}
    FreeIndex free;
    std::map<Address, Index> unmapped;
    Stream stream;
    bool small;
  };
  struct Pools {  // of one stream
    Pools(Nodes& nodes, Stream of) : small(nodes, of, true), large(nodes, of, false) {}
    Pool small;
    Pool large;
  };
  struct Space {  // a reservation
    Address address;
    Size size;
    Size page;
  };
  struct Range {
    Address begin;
    Address end;
    Size size() const { return end - begin; }
  };
  struct Facts {  // what is known of a block beside its place and its neighbours
    Pool* pool = nullptr;
    Space const* space = nullptr;  // none: in a segment that is no reservation
    bool mapped = true;
    bool waits = false;
    std::uint64_t free_since = 0;  // in ticks
  };

  struct Freed {
    Block block = {};
    Index index = kNone;
  };

  // With `rank_each`, a block made by a split ranks after all blocks made before it; else it has
  // the rank of the block that is split.
  explicit PooledBlocks(bool rank_each) : rank_each_(rank_each) {}
  PooledBlocks(PooledBlocks const&) = delete;
  PooledBlocks& operator=(PooledBlocks const&) = delete;

  Pools& of(Stream stream) { return pools_.try_emplace(stream, nodes_, stream).first->second; }
  std::map<Stream, Pools>& pools() { return pools_; }
  Node const& operator[](Index block) const { return nodes_[block]; }
  Size size(Index block) const { return nodes_[block].block.size; }
  Facts const& facts(Index block) const { return facts_[block]; }
  bool in_use(Index block) const { return nodes_[block].block.allocated() || facts_[block].waits; }
  bool whole(Index block) const {  // a segment of its own
    return nodes_[block].previous == kNone && nodes_[block].next == kNone;
  }

  std::uint64_t next_rank() { return ++ranks_; }
  void tick() { ++now_; }
  std::uint64_t age(Index block) const { return now_ - facts_[block].free_since; }

  // These leave the new block, and the one that is split, out of the pools.
  Index create(Address address, Size size, Facts const& facts, std::uint64_t rank);
  Index split_front(Index block, Size size);  // the first bytes as a new block

  // A block of all addresses of a new space, unmapped and in its pool.
  Index open(Space const& space, Pool& pool, std::uint64_t rank);
  // Forgets a space that is one block, `whole`, and returns its address.
  Address close(Index block);

  // The pages of its space that lie wholly in a free or unmapped block; none: of size 0.
  Range pages(Index block) const;
  // These pages of a free block are unmapped from now on, those of an unmapped one mapped. They
  // coalesce; returns the block that they lie in.
  Index remap(Index block, Range pages);

  // Into its pool as it is, free or unmapped, and out of it.
  void insert(Index block);
  void remove(Index block);
  void drop(Index block) { nodes_.drop(block); }

  // A free block that is out of its pool becomes an allocated one.
  Block allocate(Index block, Size requested);
  // The block as it was, with its index until then; of size 0 when none is allocated at the
  // address.
  Freed deallocate(Address address, Stream stream);

  // All streams have been waited for: the blocks that wait by now may be freed, and are by
  // `free_waiting`.
  void streams_done() { done_ = waiting_.size(); }
  void free_waiting() {
    if (done_ > 0) free_done();
  }

  Size largest_free() const;
  std::uint64_t steps() const;
  std::vector<Segment> snapshot() const;  // of a space, each mapped range
  void check() const;                     // throws InvariantViolation

 private:
  Index create_beside(Index block, Address address, Size size);
  Index split_back(Index block, Size size);  // the last bytes as a new block
  // A block out of its pool takes over the neighbours that are as free and as mapped as it is.
  void coalesce(Index block);
  void absorb(Index block, Index neighbour);
  void free(Index block);
  void free_done();
  std::vector<Index> mapped() const;  // in order of address
  void check_neighbours(Index block) const;

  bool rank_each_;
  Nodes nodes_;
  std::vector<Facts> facts_;  // by node
  AddressMap allocated_;
  std::map<Stream, Pools> pools_;
  std::map<Address, Space> spaces_;
  std::vector<Index> waiting_;  // in the order in which they were freed
  std::size_t done_ = 0;        // the first so many of them need not wait any more
  std::uint64_t ranks_ = 0;
  std::uint64_t now_ = 0;
};

}  // namespace allocbench

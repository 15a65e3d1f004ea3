// parts/best_fit_pool.hpp: segments of blocks that split, coalesce, and are found by best fit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "core/types.hpp"
#include "parts/address_map.hpp"
#include "parts/free_index.hpp"
#include "parts/node.hpp"

namespace allocbench {

// The pool holds segments that its owner got from the device; each is tiled by blocks in address
// order, and no two free blocks are neighbours. Merging always keeps the lower node, so the first
// node of a segment stays its first. Each operation takes O(log n) steps in the free blocks.
class BestFitPool {
 public:
  struct Region {
    Address address;
    Size size;
  };

  BestFitPool() : free_(nodes_) {}
  BestFitPool(BestFitPool const&) = delete;
  BestFitPool& operator=(BestFitPool const&) = delete;

  // Adds a segment as one free block. With `join`, a segment that begins where another ends
  // becomes part of it, and its block coalesces across the seam.
  void add(Address address, Size size, bool join = false);

  // The best fit for `wanted` bytes, or kNone.
  Index find(Size wanted) const { return free_.best_fit(wanted); }

  // Allocates the free block `node`, cut to its first `keep` bytes when that is less than it has.
  Block take(Index node, Size keep, Size requested);

  // Frees the allocated block at `address` and coalesces it with its neighbours. Returns the
  // block as it was, or a block of size 0 when none is allocated there.
  Block give(Address address);

  // The segments without an allocated block, in address order; `drop` forgets one of them.
  std::vector<Region> idle() const;
  void drop(Address segment);

  Block const& block(Index node) const { return nodes_[node].block; }
  Size largest_free() const { return free_.largest(); }
  std::vector<Segment> snapshot() const;
  // Throws InvariantViolation.
  void check() const;

 private:
  struct Extent {
    Size size;
    Index first;
  };

  Index absorbed_into(Index previous);
  void absorb_next(Index node);

  Nodes nodes_;
  FreeIndex free_;
  AddressMap allocated_;
  std::map<Address, Extent> segments_;
};

}  // namespace allocbench

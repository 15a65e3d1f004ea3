// strategies/bfc/chunks.hpp: the chunks of all regions; freed ones can be withheld.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "parts/free_index.hpp"
#include "parts/segment_blocks.hpp"

namespace allocbench {

// A best-fit index that can also withhold free chunks, which may not be used or coalesced yet. A
// withheld chunk is in no bin.
class WithholdingIndex : public FreeIndex {
 public:
  using FreeIndex::FreeIndex;

  void withhold(Index chunk) {
    if (withheld_.size() <= chunk) withheld_.resize(chunk + 1);
    withheld_[chunk] = 1;
  }
  void admit(Index chunk) {
    withheld_[chunk] = 0;
    insert(chunk);
  }
  bool withholds(Index chunk) const { return chunk < withheld_.size() && withheld_[chunk] != 0; }
  // Adjacent chunks that were withheld together stay apart when they are admitted.
  bool leaves_neighbors() const { return !withheld_.empty(); }

  void remove(Index chunk) {
    if (withholds(chunk))
      withheld_[chunk] = 0;
    else
      FreeIndex::remove(chunk);
  }
  bool contains(Index chunk) const { return FreeIndex::contains(chunk) != withholds(chunk); }

 private:
  std::vector<std::uint8_t> withheld_;  // by chunk, 0 or 1; empty until `withhold` is used
};

class Chunks : public SegmentBlocks<WithholdingIndex> {
 public:
  // Frees the allocated chunk at `address`, but excludes it from coalescing and from `find` until
  // `admit`, which does not coalesce it either. Returns the chunk, or kNone.
  Index withhold(Address address) {
    Index const chunk = allocated_.erase(address);
    if (chunk == kNone) return kNone;
    nodes_[chunk].block.requested = 0;
    free_.withhold(chunk);
    return chunk;
  }
  void admit(Index chunk) { free_.admit(chunk); }

  // Coalesces a free chunk with at most one free neighbor on each side.
  void coalesce(Index chunk) {
    free_.remove(chunk);
    free_.insert(coalesced(chunk));
  }

  // True if a chunk that was free has been released or merged into a neighbor. Valid until its
  // index is reused.
  bool is_gone(Index chunk) const { return nodes_[chunk].block.size == 0; }
};

}  // namespace allocbench

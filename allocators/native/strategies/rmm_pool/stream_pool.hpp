// strategies/rmm_pool/stream_pool.hpp: a block pool whose free blocks are kept apart by stream.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "parts/free_index.hpp"
#include "parts/segment_blocks.hpp"
#include "parts/stream_lists.hpp"

namespace allocbench {

// A best-fit index for each stream. Blocks are inserted into the index of the stream in `use`, and
// those of other streams are withheld from coalescing. Removing a block also uses its stream, so
// the rest of a block that is split stays where the block was.
class StreamIndex {
 public:
  explicit StreamIndex(Nodes& nodes) : nodes_(nodes) {}

  FreeIndex& use(Stream stream) { return *(used_ = &lists_.of(stream, nodes_)); }

  void insert(Index block) {
    if (holder_.size() <= block) holder_.resize(block + 1);
    holder_[block] = used_;
    used_->insert(block);
  }
  void remove(Index block) {
    used_ = holder_[block];
    holder_[block] = nullptr;
    used_->remove(block);
  }
  Index fit(Size wanted) const { return used_->fit(wanted); }
  bool contains(Index block) const {
    return holder_[block] != nullptr && holder_[block]->contains(block);
  }
  bool withholds(Index block) const { return holder_[block] != nullptr && holder_[block] != used_; }
  bool leaves_neighbors() const { return lists_.size() > 1; }

  Size largest() const {
    Size largest = 0;
    lists_.for_each([&](FreeIndex const& index) { largest = std::max(largest, index.largest()); });
    return largest;
  }
  std::uint64_t search_steps() const {
    std::uint64_t steps = 0;
    lists_.for_each([&](FreeIndex const& index) { steps += index.search_steps(); });
    return steps;
  }

  StreamLists<FreeIndex>& lists() { return lists_; }

 private:
  Nodes& nodes_;
  StreamLists<FreeIndex> lists_;
  FreeIndex* used_ = nullptr;
  std::vector<FreeIndex*> holder_;  // by block; null while it is allocated
};

class StreamPool : public SegmentBlocks<StreamIndex> {
 public:
  void use(Stream stream) { free_.use(stream); }

  // A free block for a request of a stream, chosen as StreamLists does, or kNone.
  Index find(Size wanted, Stream stream) {
    FreeIndex& own = free_.use(stream);
    auto const absorb = [&](FreeIndex& other) {
      for (Index block; (block = other.first()) != kNone;) {
        free_.remove(block);
        free_.use(stream);
        free_.insert(coalesced(block));
      }
    };
    return free_.lists().choose(wanted, own, absorb).block;
  }
};

}  // namespace allocbench

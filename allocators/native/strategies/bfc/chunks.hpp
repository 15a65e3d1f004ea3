// strategies/bfc/chunks.hpp: the chunks of all regions; freed ones can be withheld by their time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

#include "core/types.hpp"
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

// Every free gets the next count. A chunk whose count is above the safe frontier is unsafe: it does
// not coalesce and serves no request. Chunks that the frontier has passed are freed in batches:
// each coalesces, in the order of the frees, with at most one neighbor on each side. So two free
// chunks can stay apart if a chunk between them is merged in the same batch. Each call takes
// O(1) expected time in addition to that of `Chunks`, except `largest` and `forget`, which take
// O(withheld chunks).
class Timestamps {
 public:
  explicit Timestamps(Chunks& chunks) : chunks_(chunks) {}

  // Returns the chunk as it was allocated, or one of size 0 if none is allocated at the address.
  Block free(Address address) {
    Block const chunk = chunks_.allocated(address);
    if (chunk.size != 0) withheld_.push_back(chunks_.withhold(address));
    return chunk;
  }

  // Moves the frontier past one more free; false if it has passed the last.
  bool advance() {
    if (passed_ == withheld_.size()) return false;
    ++passed_;
    return true;
  }

  void advance_to_last() { passed_ = withheld_.size(); }

  // Frees the batch of chunks that the frontier has passed.
  void merge() {
    if (passed_ > 0) [[unlikely]]
      merge_batch();
  }

  // Drops the chunks that no longer exist.
  void forget() {
    auto const gone = [&](Index chunk) { return chunks_.is_gone(chunk); };
    passed_ -= static_cast<std::size_t>(std::count_if(
        withheld_.begin(), withheld_.begin() + static_cast<std::ptrdiff_t>(passed_), gone));
    std::erase_if(withheld_, gone);
  }

  std::size_t unsafe() const { return withheld_.size() - passed_; }

  // Size of the largest chunk waiting for its batch, in bytes; 0 if there is none.
  Size largest() const {
    Size largest_size = 0;
    for (Index const chunk : withheld_)
      largest_size = std::max(largest_size, chunks_.block(chunk).size);
    return largest_size;
  }

 private:
  void merge_batch() {
    auto const end = withheld_.begin() + static_cast<std::ptrdiff_t>(passed_);
    std::vector<Index> const batch(withheld_.begin(), end);
    withheld_.erase(withheld_.begin(), end);
    passed_ = 0;
    for (Index const chunk : batch) chunks_.admit(chunk);
    for (Index const chunk : batch)
      if (!chunks_.is_gone(chunk)) chunks_.coalesce(chunk);
  }
  Chunks& chunks_;
  std::deque<Index> withheld_;  // in the order of their counts
  std::size_t passed_ = 0;      // the number at the front that the frontier has passed
};

}  // namespace allocbench

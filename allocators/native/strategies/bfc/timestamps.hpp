// strategies/bfc/timestamps.hpp: freed chunks that cannot be reused yet.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

#include "core/types.hpp"
#include "strategies/bfc/chunk_pool.hpp"

namespace allocbench {

// Every free gets the next count. A chunk whose count is above the safe frontier is unsafe: it does
// not coalesce and serves no request. Chunks that the frontier has passed are freed in batches:
// each coalesces, in the order of the frees, with at most one neighbour on each side. So two free
// chunks can stay apart if a chunk between them is merged in the same batch. Each call takes O(1)
// expected steps in addition to those of the pool, except `largest` and `forget`, which take
// O(chunks).
class Timestamps {
 public:
  explicit Timestamps(ChunkPool& pool) : pool_(pool) {}

  // Returns the chunk as it was allocated, or one of size 0 if none is allocated at the address.
  Block free(Address address) {
    Block const chunk = pool_.allocated(address);
    if (chunk.size != 0) chunks_.push_back(pool_.withhold(address));
    return chunk;
  }

  // Moves the frontier past one more free; false if it has passed the last.
  bool advance() {
    if (passed_ == chunks_.size()) return false;
    ++passed_;
    return true;
  }

  void advance_to_last() { passed_ = chunks_.size(); }

  // Frees the batch of chunks that the frontier has passed.
  void merge() {
    if (passed_ == 0) return;
    auto const end = chunks_.begin() + static_cast<std::ptrdiff_t>(passed_);
    std::vector<Index> const batch(chunks_.begin(), end);
    chunks_.erase(chunks_.begin(), end);
    passed_ = 0;
    for (Index const chunk : batch) pool_.admit(chunk);
    for (Index const chunk : batch)
      if (!pool_.is_gone(chunk)) pool_.coalesce(chunk);
  }

  // Drops the chunks that are no longer in the pool.
  void forget() {
    auto const gone = [&](Index chunk) { return pool_.is_gone(chunk); };
    passed_ -= static_cast<std::size_t>(std::count_if(
        chunks_.begin(), chunks_.begin() + static_cast<std::ptrdiff_t>(passed_), gone));
    std::erase_if(chunks_, gone);
  }

  std::size_t unsafe() const { return chunks_.size() - passed_; }

  // Size of the largest chunk waiting for its batch, in bytes; 0 if there is none.
  Size largest() const {
    Size largest_size = 0;
    for (Index const chunk : chunks_)
      largest_size = std::max(largest_size, pool_.block(chunk).size);
    return largest_size;
  }

 private:
  ChunkPool& pool_;
  std::deque<Index> chunks_;  // in the order of their counts
  std::size_t passed_ = 0;    // the number at the front that the frontier has passed
};

}  // namespace allocbench

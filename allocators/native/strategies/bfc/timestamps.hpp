// strategies/bfc/timestamps.hpp: freed chunks that may not be reused yet.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

#include "core/types.hpp"
#include "parts/block_pool.hpp"

namespace allocbench {

// Every free gets the next count, and a chunk is unsafe while its count is above the safe frontier:
// it neither coalesces nor serves a request. The chunks that the frontier has passed become free in
// batches: each coalesces, in the order of the frees, with at most one neighbour on each side; so
// two free chunks stay apart when one lies beside a chunk that is itself taken over in the same
// batch. O(1) expected steps beside those of the pool, but for `largest` and `forget`, which take
// O(chunks).
class Timestamps {
 public:
  explicit Timestamps(BestFitPool& pool) : pool_(pool) {}

  // The chunk as it was, or one of size 0 when none is allocated at the address.
  Block free(Address address) {
    Block const chunk = pool_.allocated(address);
    if (chunk.size != 0) chunks_.push_back(pool_.give_apart(address));
    return chunk;
  }

  // Advances the frontier by a free; false when it has passed the last.
  bool advance() {
    if (passed_ == chunks_.size()) return false;
    ++passed_;
    return true;
  }

  void advance_to_last() { passed_ = chunks_.size(); }

  // The batch of the chunks that the frontier has passed.
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

  // Forgets the chunks that are gone from the pool.
  void forget() {
    auto const gone = [&](Index chunk) { return pool_.is_gone(chunk); };
    passed_ -= static_cast<std::size_t>(std::count_if(
        chunks_.begin(), chunks_.begin() + static_cast<std::ptrdiff_t>(passed_), gone));
    std::erase_if(chunks_, gone);
  }

  std::size_t unsafe() const { return chunks_.size() - passed_; }

  // Bytes of the largest chunk that waits for its batch; 0 when there is none.
  Size largest() const {
    Size found = 0;
    for (Index const chunk : chunks_) found = std::max(found, pool_.block(chunk).size);
    return found;
  }

 private:
  BestFitPool& pool_;
  std::deque<Index> chunks_;  // in the order of their counts
  std::size_t passed_ = 0;    // the first so many lie below the frontier
};

}  // namespace allocbench

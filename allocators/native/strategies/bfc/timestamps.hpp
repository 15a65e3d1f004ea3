// strategies/bfc/timestamps.hpp: freed chunks that cannot be reused yet.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

#include "core/types.hpp"
#include "strategies/bfc/chunks.hpp"

namespace allocbench {

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

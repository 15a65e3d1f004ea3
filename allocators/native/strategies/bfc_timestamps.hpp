// strategies/bfc_timestamps.hpp: freed chunks that may not be reused yet.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <unordered_set>

#include "core/types.hpp"

namespace allocbench {

// Every chunk freed gets the next count. Chunks whose count is above the safe frontier wait here,
// as they were allocated: they neither coalesce nor serve requests.
// O(1) expected steps, but for `largest`, which takes O(chunks).
class Timestamps {
 public:
  void add(Block const& chunk) {
    waiting_.push_back(chunk);
    addresses_.insert(chunk.address);
  }

  bool empty() const { return waiting_.empty(); }
  std::size_t size() const { return waiting_.size(); }
  bool contains(Address address) const { return addresses_.contains(address); }

  // Advances the frontier by one count, to that of the chunk returned. Not while it is empty.
  Address advance() {
    Address const chunk = waiting_.front().address;
    waiting_.pop_front();
    addresses_.erase(chunk);
    return chunk;
  }

  // Bytes of the largest chunk; 0 when there is none.
  Size largest() const {
    Size found = 0;
    for (Block const& chunk : waiting_) found = std::max(found, chunk.size);
    return found;
  }

 private:
  std::deque<Block> waiting_;  // in the order of their counts
  std::unordered_set<Address> addresses_;
};

}  // namespace allocbench

// parts/node.hpp: values in an array, identified by index, and blocks as such values.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/huge_pages.hpp"
#include "core/types.hpp"

namespace allocbench {

using Index = std::uint32_t;
constexpr Index kNone = std::numeric_limits<Index>::max();

// Dropped slots are reused last in, first out. Every call takes amortized O(1) time.
template <class Value>
class Slots {
 public:
  Index put(Value const& value) {
    if (dropped_ == 0) [[unlikely]]
      add();
    Index const index = unused_[--dropped_];
    values_[index] = value;
    return index;
  }
  void drop(Index index) { unused_[dropped_++] = index; }

  Value& operator[](Index index) { return values_[index]; }
  Value const& operator[](Index index) const { return values_[index]; }

 private:
  // Adds an unused slot. Does not get the value, which would then have to be in memory.
  [[gnu::noinline]] void add() {
    auto const index = static_cast<Index>(values_.size());
    values_.emplace_back();
    unused_.resize(values_.size());
    drop(index);
  }

  LargeArray<Value> values_;
  LargeArray<Index> unused_;  // as long as `values_`; the first `dropped_` are unused slots
  std::size_t dropped_ = 0;
};

// A block, its neighbors in address order (within its segment) and, while it is in a bin, those in
// the list of this bin, whose number is `bin`. `rank` is compared before the address in the order
// of FreeIndex. Each node has a cache line of its own, because a free visits nodes that are far
// apart when there are many.
struct alignas(64) Node {
  Block block;
  std::uint64_t rank = 0;
  Index previous = kNone;
  Index next = kNone;
  Index left = kNone;
  Index right = kNone;
  Index bin = kNone;
  Address origin = 0;  // of a buddy: where its region begins
};

// The node at kNone stands for what is beyond the first or the last block of a segment or list. It
// counts as allocated and is larger than all others. Links to it may be set like those to any
// other node, so that inserting, removing, splitting and coalescing need no branches for the ends,
// which would be unpredictable.
class Nodes {
 public:
  Nodes() {
    constexpr Size kLargest = std::numeric_limits<Size>::max();
    slots_.put({.block = {.address = 0, .size = kLargest, .requested = kLargest}});
  }

  Index create(Address address, Size size) {
    return slots_.put({.block = {.address = address, .size = size, .requested = 0}}) - 1;
  }
  void drop(Index node) { slots_.drop(node + 1); }

  // Makes `node` the neighbor before `after`, or after `before`.
  void link_before(Index after, Index node) {
    Index const previous = (*this)[after].previous;
    (*this)[node].previous = previous;
    (*this)[node].next = after;
    (*this)[previous].next = node;
    (*this)[after].previous = node;
  }
  void link_after(Index before, Index node) {
    Index const next = (*this)[before].next;
    (*this)[node].previous = before;
    (*this)[node].next = next;
    (*this)[next].previous = node;
    (*this)[before].next = node;
  }
  // Makes the neighbor after the next one the next one.
  void unlink_next(Index node) {
    Index const next = (*this)[(*this)[node].next].next;
    (*this)[node].next = next;
    (*this)[next].previous = node;
  }

  // kNone + 1 is 0.
  Node& operator[](Index node) { return slots_[node + 1]; }
  Node const& operator[](Index node) const { return slots_[node + 1]; }

 private:
  Slots<Node> slots_;
};

}  // namespace allocbench

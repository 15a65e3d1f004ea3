// parts/free_index.hpp: the free blocks, for best fit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "core/types.hpp"
#include "parts/class_marks.hpp"
#include "parts/node.hpp"
#include "parts/size_class.hpp"

namespace allocbench {

// Best fit means: the smallest block that is large enough; among equals the lowest rank, then the
// lowest address. Most strategies leave all ranks at 0.
//
// Free blocks are kept in bins of sizes that differ by at most 1/32; a bitmap tells which bins
// hold any. A bin is a treap ordered by (size, rank, address) whose priorities are a hash of the
// node's index: nearly always one or two nodes, and O(log n) expected steps if all blocks share a
// bin. (Treaps: Seidel and Aragon, Randomized search trees, Algorithmica 16, 1996.)
class FreeIndex {
 public:
  explicit FreeIndex(Nodes& nodes) : nodes_(nodes) { roots_.fill(kNone); }

  void insert(Index node) {
    std::size_t const bin = Class::of(size(node));
    marks_.mark(bin);
    Index* link = &roots_[bin];
    while (*link != kNone && priority(*link) > priority(node)) link = child(*link, node);
    // The subtree at `link` is split around the node, which takes its place.
    Index rest = *link;
    *link = node;
    Index* below = &nodes_[node].left;
    Index* above = &nodes_[node].right;
    for (; rest != kNone; ++steps_) {
      Index*& edge = before(rest, node) ? below : above;
      *edge = rest;
      edge = before(rest, node) ? &nodes_[rest].right : &nodes_[rest].left;
      rest = *edge;
    }
    *below = *above = kNone;
  }

  void remove(Index node) {
    std::size_t const bin = Class::of(size(node));
    Index* link = &roots_[bin];
    while (*link != node) link = child(*link, node);
    Index left = nodes_[node].left;
    Index right = nodes_[node].right;
    for (; left != kNone && right != kNone; ++steps_) {
      if (priority(left) > priority(right)) {
        *link = left;
        link = &nodes_[left].right;
        left = *link;
      } else {
        *link = right;
        link = &nodes_[right].left;
        right = *link;
      }
    }
    *link = left != kNone ? left : right;
    marks_.unmark_if(roots_[bin] == kNone, bin);
  }

  bool contains(Index node) const {
    Index at = roots_[Class::of(size(node))];
    while (at != kNone && at != node) at = before(node, at) ? nodes_[at].left : nodes_[at].right;
    return at == node;
  }

  // The best fit for `wanted` bytes, or kNone.
  Index fit(Size wanted) const {
    std::size_t const bin = Class::of(wanted);
    Index const best = parted(bin, [&](Index at) { return size(at) >= wanted; }).above;
    return best != kNone ? best : first_from(bin + 1);
  }

  // The free blocks in the order of best fit: the first, the one after `node`, the one before it,
  // and the last, a largest one; kNone when there is none.
  Index first() const { return first_from(0); }
  Index next(Index node) const {
    std::size_t const bin = Class::of(size(node));
    Index const found = parted(bin, [&](Index at) { return before(node, at); }).above;
    return found != kNone ? found : first_from(bin + 1);
  }
  Index previous(Index node) const {
    std::size_t const bin = Class::of(size(node));
    Index const found = parted(bin, [&](Index at) { return !before(at, node); }).below;
    return found != kNone ? found : last_before(bin);
  }
  Index last() const { return last_before(Class::kCount); }

  // Bytes of the largest free block; 0 when there is none.
  Size largest() const {
    Index const found = last();
    return found == kNone ? 0 : size(found);
  }

  // Nodes passed since the beginning, by all operations but `contains` and `last`.
  std::uint64_t steps() const { return steps_; }

 private:
  using Class = SizeClass<5>;  // bins of sizes that differ by at most 1/32

  // Distinct for distinct nodes: an odd factor permutes the 32-bit integers.
  static std::uint32_t priority(Index node) { return node * 0x9E3779B1u; }

  Size size(Index node) const { return nodes_[node].block.size; }

  bool before(Index a, Index b) const {
    Node const& x = nodes_[a];
    Node const& y = nodes_[b];
    if (x.block.size != y.block.size) return x.block.size < y.block.size;
    return x.rank != y.rank ? x.rank < y.rank : x.block.address < y.block.address;
  }

  Index* child(Index at, Index node) {
    ++steps_;
    return before(node, at) ? &nodes_[at].left : &nodes_[at].right;
  }

  // The last block of a bin that is not late and the first that is, each kNone when there is none.
  // All that come after a late one are late.
  struct Parted {
    Index below, above;
  };
  template <class Late>
  Parted parted(std::size_t bin, Late is_late) const {
    Parted found{kNone, kNone};
    for (Index at = roots_[bin]; at != kNone; ++steps_) {
      bool const late = is_late(at);
      (late ? found.above : found.below) = at;
      at = late ? nodes_[at].left : nodes_[at].right;
    }
    return found;
  }

  // The first block of the bins from `bin` on, or kNone.
  Index first_from(std::size_t bin) const {
    std::size_t const marked = marks_.first(bin);
    if (marked == Class::kCount) return kNone;
    Index first = kNone;
    for (Index at = roots_[marked]; at != kNone; at = nodes_[at].left, ++steps_) first = at;
    return first;
  }

  // The last block of the bins before `bin`, or kNone.
  Index last_before(std::size_t bin) const {
    std::size_t const marked = marks_.last(bin);
    if (marked == Class::kCount) return kNone;
    Index last = kNone;
    for (Index at = roots_[marked]; at != kNone; at = nodes_[at].right) last = at;
    return last;
  }

  Nodes& nodes_;
  std::array<Index, Class::kCount> roots_;
  ClassMarks<Class::kCount> marks_;
  mutable std::uint64_t steps_ = 0;
};

}  // namespace allocbench

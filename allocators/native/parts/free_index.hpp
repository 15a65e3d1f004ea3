// parts/free_index.hpp: an index of free blocks for best fit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "core/types.hpp"
#include "parts/class_marks.hpp"
#include "parts/node.hpp"
#include "parts/size_class.hpp"

namespace allocbench {

// Best fit is the smallest block that is large enough; ties are broken by the lowest rank, then by
// the lowest address. Most strategies leave all ranks at 0.
//
// Free blocks are kept in bins whose sizes differ by at most 1/32; a bitmap marks the bins that are
// not empty. A bin is a treap ordered by (size, rank, address), whose priorities are a hash of the
// node index. It nearly always has one or two nodes; O(log n) expected steps if all blocks are in
// one bin. (Treaps: Seidel and Aragon, Randomized search trees, Algorithmica 16, 1996.)
class FreeIndex {
 public:
  explicit FreeIndex(Nodes& nodes) : nodes_(nodes) { roots_.fill(kNone); }

  void insert(Index node) {
    std::size_t const bin = Class::of(size(node));
    marks_.mark(bin);
    Index* link = &roots_[bin];
    while (*link != kNone && priority(*link) > priority(node)) link = child(*link, node);
    // Split the subtree at `link` around the node, which takes its place.
    Index rest = *link;
    *link = node;
    Index* below = &nodes_[node].left;
    Index* above = &nodes_[node].right;
    for (; rest != kNone; ++search_steps_) {
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
    for (; left != kNone && right != kNone; ++search_steps_) {
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
    Index current = roots_[Class::of(size(node))];
    while (current != kNone && current != node)
      current = before(node, current) ? nodes_[current].left : nodes_[current].right;
    return current == node;
  }

  // The best fit for `wanted` bytes, or kNone.
  Index fit(Size wanted) const {
    std::size_t const bin = Class::of(wanted);
    Index const best = parted(bin, [&](Index block) { return size(block) >= wanted; }).above;
    return best != kNone ? best : first_from(bin + 1);
  }

  // The free blocks in best-fit order: the first, the next after `node`, the previous before
  // `node`, and the last (a largest one). kNone if there is none.
  Index first() const { return first_from(0); }
  Index next(Index node) const {
    std::size_t const bin = Class::of(size(node));
    Index const neighbor = parted(bin, [&](Index block) { return before(node, block); }).above;
    return neighbor != kNone ? neighbor : first_from(bin + 1);
  }
  Index previous(Index node) const {
    std::size_t const bin = Class::of(size(node));
    Index const neighbor = parted(bin, [&](Index block) { return !before(block, node); }).below;
    return neighbor != kNone ? neighbor : last_before(bin);
  }
  Index last() const { return last_before(Class::kCount); }

  // Size of the largest free block in bytes; 0 if there is none.
  Size largest() const {
    Index const block = last();
    return block == kNone ? 0 : size(block);
  }

  // Nodes visited so far by all operations except `contains` and `last`.
  std::uint64_t search_steps() const { return search_steps_; }

 private:
  using Class = SizeClass<5>;  // bins of sizes that differ by at most 1/32

  // Different for different nodes: multiplying by an odd number permutes the 32-bit integers.
  static std::uint32_t priority(Index node) { return node * 0x9E3779B1u; }

  Size size(Index node) const { return nodes_[node].block.size; }

  bool before(Index a, Index b) const {
    Node const& x = nodes_[a];
    Node const& y = nodes_[b];
    if (x.block.size != y.block.size) return x.block.size < y.block.size;
    return x.rank != y.rank ? x.rank < y.rank : x.block.address < y.block.address;
  }

  Index* child(Index parent, Index node) {
    ++search_steps_;
    return before(node, parent) ? &nodes_[parent].left : &nodes_[parent].right;
  }

  // The last block of a bin for which `late` is false, and the first for which it is true (kNone if
  // there is none). `late` is monotonic in the order of the bin.
  struct Parted {
    Index below, above;
  };
  template <class Late>
  Parted parted(std::size_t bin, Late is_late) const {
    Parted parted{kNone, kNone};
    for (Index current = roots_[bin]; current != kNone; ++search_steps_) {
      bool const late = is_late(current);
      (late ? parted.above : parted.below) = current;
      current = late ? nodes_[current].left : nodes_[current].right;
    }
    return parted;
  }

  // The first block of the bins at or after `bin`, or kNone.
  Index first_from(std::size_t bin) const {
    std::size_t const marked = marks_.first(bin);
    if (marked == Class::kCount) return kNone;
    Index first = kNone;
    for (Index current = roots_[marked]; current != kNone;
         current = nodes_[current].left, ++search_steps_)
      first = current;
    return first;
  }

  // The last block of the bins before `bin`, or kNone.
  Index last_before(std::size_t bin) const {
    std::size_t const marked = marks_.last(bin);
    if (marked == Class::kCount) return kNone;
    Index last = kNone;
    for (Index current = roots_[marked]; current != kNone; current = nodes_[current].right)
      last = current;
    return last;
  }

  Nodes& nodes_;
  std::array<Index, Class::kCount> roots_;
  ClassMarks<Class::kCount> marks_;
  mutable std::uint64_t search_steps_ = 0;
};

}  // namespace allocbench

// strategies/tlsf/segregated_index.hpp: the free blocks, for good fit in constant time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "core/types.hpp"
#include "parts/class_marks.hpp"
#include "parts/node.hpp"
#include "parts/size_class.hpp"

namespace allocbench {

// Good fit means: any block of the first class in which every block is large enough, the last one
// freed first; only when there is none, the last one freed of the class that the request lies in,
// if that one happens to be large enough. Blocks of a class form a doubly linked list through the
// nodes' `left` (towards the head) and `right`. Every operation but `contains` and `largest`,
// which nothing but checks and statistics use, takes O(1) steps.
// (TLSF: Masmano, Ripoll, Crespo and Real, ECRTS 2004.)
class SegregatedIndex {
 public:
  explicit SegregatedIndex(Nodes& nodes) : nodes_(nodes) { heads_.fill(kNone); }

  void insert(Index node) {
    std::size_t const list = Class::of(size(node));
    Index const head = heads_[list];
    nodes_[node].left = kNone;
    nodes_[node].right = head;
    if (head != kNone) nodes_[head].left = node;
    heads_[list] = node;
    marks_.mark(list);
  }

  void remove(Index node) {
    std::size_t const list = Class::of(size(node));
    auto const [before, after] = std::pair{nodes_[node].left, nodes_[node].right};
    (before == kNone ? heads_[list] : nodes_[before].right) = after;
    if (after != kNone) nodes_[after].left = before;
    marks_.unmark_if(heads_[list] == kNone, list);
  }

  // A good fit for `wanted` bytes, or kNone.
  Index fit(Size wanted) const {
    std::size_t const list = marks_.first(Class::at_least(wanted));
    if (list != Class::kCount) return heads_[list];
    Index const near = heads_[Class::of(wanted)];
    return near != kNone && size(near) >= wanted ? near : kNone;
  }

  bool contains(Index node) const {
    Index at = heads_[Class::of(size(node))];
    while (at != kNone && at != node) at = nodes_[at].right;
    return at == node;
  }

  // Nodes passed by all operations but `contains` and `largest`: they never pass one.
  static constexpr std::uint64_t steps() { return 0; }

  // Bytes of the largest free block; 0 when there is none.
  Size largest() const {
    std::size_t const list = marks_.last();
    Size found = 0;
    if (list == Class::kCount) return found;
    for (Index at = heads_[list]; at != kNone; at = nodes_[at].right)
      found = std::max(found, size(at));
    return found;
  }

 private:
  using Class = SizeClass<5>;  // 32 lists to each power of two

  Size size(Index node) const { return nodes_[node].block.size; }

  Nodes& nodes_;
  std::array<Index, Class::kCount> heads_;
  ClassMarks<Class::kCount> marks_;
};

}  // namespace allocbench

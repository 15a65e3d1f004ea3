// strategies/tlsf/segregated_index.hpp: an index of free blocks for good fit in constant time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>

#include "core/types.hpp"
#include "parts/class_marks.hpp"
#include "parts/node.hpp"
#include "parts/size_class.hpp"

namespace allocbench {

// Good fit takes any block of the first class in which every block is large enough, last freed
// first. If there is none, it takes the last freed block of the class that contains the request, if
// that one is large enough. The blocks of a class form a doubly linked list through the nodes'
// `left` (towards the head) and `right`. Every operation takes O(1) time, except `contains` and
// `largest`, which only checks and statistics use. (TLSF: Masmano, Ripoll, Crespo and Real, ECRTS
// 2004.)
class SegregatedIndex {
 public:
  explicit SegregatedIndex(Nodes& nodes) : nodes_(nodes) { heads_.fill(kNone); }

  void insert(Index node) {
    std::size_t const list = Class::of(size(node));
    Index const head = heads_[list];
    nodes_[node].left = kNone;
    nodes_[node].right = head;
    nodes_[node].bin = static_cast<Index>(list);
    nodes_[head].left = node;
    heads_[list] = node;
    marks_.mark(list);
  }

  void remove(Index node) {
    auto const [left, right, list] =
        std::tuple{nodes_[node].left, nodes_[node].right, nodes_[node].bin};
    (left == kNone ? heads_[list] : nodes_[left].right) = right;
    nodes_[right].left = left;
    marks_.unmark_if(heads_[list] == kNone, list);
  }

  // A good fit for `wanted` bytes, or kNone.
  Index fit(Size wanted) const {
    std::size_t const list = marks_.first(Class::at_least(wanted));
    if (list != Class::kCount) return heads_[list];
    Index const near = heads_[Class::of(wanted)];
    return size(near) >= wanted ? near : kNone;
  }

  bool contains(Index node) const {
    Index current = heads_[Class::of(size(node))];
    while (current != kNone && current != node) current = nodes_[current].right;
    return current == node;
  }

  // Always 0: no operation except `contains` and `largest` visits further nodes.
  static constexpr std::uint64_t search_steps() { return 0; }

  // Size of the largest free block in bytes; 0 if there is none.
  Size largest() const {
    std::size_t const list = marks_.last();
    Size largest_size = 0;
    if (list == Class::kCount) return largest_size;
    for (Index current = heads_[list]; current != kNone; current = nodes_[current].right)
      largest_size = std::max(largest_size, size(current));
    return largest_size;
  }

 private:
  using Class = SizeClass<5>;  // 32 lists to each power of two

  Size size(Index node) const { return nodes_[node].block.size; }

  Nodes& nodes_;
  std::array<Index, Class::kCount> heads_;
  ClassMarks<Class::kCount> marks_;
};

}  // namespace allocbench

// parts/free_index.hpp: an index of free blocks for best fit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "parts/block_tree.hpp"
#include "parts/node.hpp"
#include "parts/size_class.hpp"

namespace allocbench {

// Best fit is the smallest block that is large enough; ties are broken by the lowest rank, then by
// the lowest address. Most strategies leave all ranks at 0.
//
// Free blocks are kept in bins, 2^fine_bits for each power of two; a bitmap marks the bins that are
// not empty. A bin nearly always has one or two blocks. They form a doubly linked list in best-fit
// order. The blocks of a bin that has had more than 128 are in a tree until the bin is empty, so
// every operation takes O(log n) time, even if all n blocks are in one bin. Shorter lists take less
// time than a tree: the front serves requests, so most blocks that are freed belong near it.
template <int fine_bits>
class FreeIndexWith {
 public:
  explicit FreeIndexWith(Nodes& nodes) : nodes_(nodes) {}

  void insert(Index node) {
    std::size_t const number = Class::of(size(node));
    nodes_[node].bin = static_cast<Index>(number);
    marks_.mark(number);
    Bin& bin = bins_[number];
    if (bin.count++ >= kLongestList || bin.first == kInTree) [[unlikely]]
      insert_into_tree(bin, node);
    else
      insert_into_list(bin, node);
  }

  void remove(Index node) {
    Index const left = nodes_[node].left;
    Index const right = nodes_[node].right;
    std::size_t const number = nodes_[node].bin;
    Bin& bin = bins_[number];
    if (left == kInTree) [[unlikely]]
      remove_from_tree(bin, node);
    else {
      (left == kNone ? bin.first : nodes_[left].right) = right;
      nodes_[right].left = left;
    }
    marks_.unmark_if(--bin.count == 0, number);
  }

  bool contains(Index node) const {
    Bin const& bin = bins_[Class::of(size(node))];
    if (bin.first == kInTree) return tree_.first_from(key(node)) == node;
    Index current = bin.first;
    while (current != kNone && current != node) current = nodes_[current].right;
    return current == node;
  }

  // The best fit for `wanted` bytes, or kNone.
  Index fit(Size wanted) const {
    std::size_t const number = marks_.first(Class::of(wanted));
    if (number == Class::kCount) return kNone;
    Index best = bins_[number].first;
    if (best == kInTree) [[unlikely]]
      best = first_in_tree(number, {.size = wanted});
    else
      for (; size(best) < wanted; ++search_steps_) best = nodes_[best].right;
    return best != kNone ? best : first_from(number + 1);
  }

  // The free blocks in best-fit order: the first, the next after `node`, the previous before
  // `node`, and the last (a largest one), or kNone.
  Index first() const { return first_from(0); }
  Index next(Index node) const {
    std::size_t const number = Class::of(size(node));
    FitKey after = key(node);
    ++after.address;
    Index const next =
        bins_[number].first == kInTree ? first_in_tree(number, after) : nodes_[node].right;
    return next != kNone ? next : first_from(number + 1);
  }
  Index previous(Index node) const {
    std::size_t const number = Class::of(size(node));
    Index const previous =
        bins_[number].first == kInTree ? last_in_tree(number, key(node)) : nodes_[node].left;
    return previous != kNone ? previous : last_before(number);
  }
  Index last() const { return last_before(Class::kCount); }

  // Size of the largest free block in bytes; 0 if there is none.
  Size largest() const {
    Index const block = last();
    return block == kNone ? 0 : size(block);
  }

  // Steps of searches in lists and trees so far.
  std::uint64_t search_steps() const { return search_steps_ + tree_.search_steps(); }

 private:
  using Class = SizeClass<fine_bits>;
  static constexpr std::uint32_t kLongestList = 128;
  static constexpr Index kInTree = kNone - 1;  // in place of the first block, and of a left link

  struct Bin {
    Index first = kNone;
    std::uint32_t count = 0;
  };

  Size size(Index node) const { return nodes_[node].block.size; }
  FitKey key(Index node) const {
    Node const& of = nodes_[node];
    return {of.block.address, of.rank, of.block.size};
  }

  bool before(Index a, Index b) const {
    return size(a) != size(b) ? size(a) < size(b) : key(a) < key(b);
  }

  void insert_into_list(Bin& bin, Index node) {
    Index left = kNone;
    Index right = bin.first;
    for (; before(right, node); ++search_steps_) {
      left = right;
      right = nodes_[right].right;
    }
    nodes_[node].left = left;
    nodes_[node].right = right;
    (left == kNone ? bin.first : nodes_[left].right) = node;
    nodes_[right].left = node;
  }

  [[gnu::noinline]] void insert_into_tree(Bin& bin, Index node) {
    if (bin.first != kInTree)
      for (Index listed = bin.first; listed != kNone;) {
        Index const right = nodes_[listed].right;
        nodes_[listed].left = kInTree;
        tree_.insert(key(listed), listed);
        listed = right;
      }
    bin.first = kInTree;
    nodes_[node].left = kInTree;
    tree_.insert(key(node), node);
  }

  [[gnu::noinline]] void remove_from_tree(Bin& bin, Index node) {
    tree_.erase(key(node));
    if (bin.count == 1) bin.first = kNone;
  }

  // The first block of a bin whose key is not below `from`, and the last whose key is below `end`,
  // or kNone. The blocks of the bin must be in the tree.
  [[gnu::noinline]] Index first_in_tree(std::size_t number, FitKey const& from) const {
    return if_in(number, tree_.first_from(from));
  }
  [[gnu::noinline]] Index last_in_tree(std::size_t number, FitKey const& end) const {
    return if_in(number, tree_.last_before(end));
  }
  Index if_in(std::size_t number, Index node) const {
    return node != kNone && Class::of(size(node)) == number ? node : kNone;
  }

  // The first block of the bins at or after `from`, or kNone.
  Index first_from(std::size_t from) const {
    std::size_t const number = marks_.first(from);
    if (number == Class::kCount) return kNone;
    Index const first = bins_[number].first;
    return first != kInTree ? first : first_in_tree(number, {.size = Class::smallest(number)});
  }

  // The last block of the bins before `end`, or kNone.
  Index last_before(std::size_t end) const {
    std::size_t const number = marks_.last(end);
    if (number == Class::kCount) return kNone;
    Index last = bins_[number].first;
    if (last == kInTree) return last_in_tree(number, {.size = Class::smallest(number + 1)});
    while (nodes_[last].right != kNone) last = nodes_[last].right;
    return last;
  }

  Nodes& nodes_;
  std::array<Bin, Class::kCount> bins_ = {};
  ClassMarks<Class::kCount> marks_;
  BlockTree tree_;
  mutable std::uint64_t search_steps_ = 0;
};

using FreeIndex = FreeIndexWith<5>;  // sizes of a bin differ by at most 1/32

}  // namespace allocbench

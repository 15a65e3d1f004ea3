// parts/free_index.hpp: the free blocks, for best fit.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "core/types.hpp"
#include "parts/node.hpp"

namespace allocbench {

// Best fit means: the smallest block that is large enough, the lowest address among equals.
//
// Free blocks are kept in bins of sizes that differ by at most 1/32; a bitmap tells which bins
// hold any. A bin is a treap ordered by (size, address) whose priorities are a hash of the node's
// index: nearly always one or two nodes, and O(log n) expected steps if all blocks share a bin.
// (Treaps: Seidel and Aragon, Randomized search trees, Algorithmica 16, 1996.)
class FreeIndex {
 public:
  explicit FreeIndex(Nodes& nodes) : nodes_(nodes) { roots_.fill(kNone); }

  void insert(Index node) {
    std::size_t const bin = bin_of(size(node));
    mark(bin);
    Index* link = &roots_[bin];
    while (*link != kNone && priority(*link) > priority(node)) link = child(*link, node);
    // The subtree at `link` is split around the node, which takes its place.
    Index rest = *link;
    *link = node;
    Index* below = &nodes_[node].left;
    Index* above = &nodes_[node].right;
    while (rest != kNone) {
      Index*& edge = before(rest, node) ? below : above;
      *edge = rest;
      edge = before(rest, node) ? &nodes_[rest].right : &nodes_[rest].left;
      rest = *edge;
    }
    *below = *above = kNone;
  }

  void remove(Index node) {
    std::size_t const bin = bin_of(size(node));
    Index* link = &roots_[bin];
    while (*link != node) link = child(*link, node);
    Index left = nodes_[node].left;
    Index right = nodes_[node].right;
    while (left != kNone && right != kNone) {
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
    unmark_if_empty(bin);
  }

  bool contains(Index node) const {
    Index at = roots_[bin_of(size(node))];
    while (at != kNone && at != node) at = before(node, at) ? nodes_[at].left : nodes_[at].right;
    return at == node;
  }

  // The best fit for `wanted` bytes, or kNone.
  Index best_fit(Size wanted) const {
    std::size_t const bin = bin_of(wanted);
    Index best = kNone;
    for (Index at = roots_[bin]; at != kNone;) {
      bool const fits = size(at) >= wanted;
      if (fits) best = at;
      at = fits ? nodes_[at].left : nodes_[at].right;
    }
    if (best != kNone) return best;
    std::size_t const larger = first_marked(bin + 1);
    if (larger == kBins) return kNone;
    for (Index at = roots_[larger]; at != kNone; at = nodes_[at].left) best = at;
    return best;
  }

  // Bytes of the largest free block; 0 when there is none.
  Size largest() const {
    if (words_ == 0) return 0;
    auto const word = static_cast<std::size_t>(63 - std::countl_zero(words_));
    auto const bin = 64 * word + static_cast<std::size_t>(63 - std::countl_zero(marks_[word]));
    Index last = kNone;
    for (Index at = roots_[bin]; at != kNone; at = nodes_[at].right) last = at;
    return size(last);
  }

 private:
  static constexpr int kFineBits = 5;  // 32 bins to each power of two
  static constexpr std::size_t kBins = 64 << kFineBits;

  static std::size_t bin_of(Size size) {
    int const power = 63 - std::countl_zero(size | 1);
    if (power < kFineBits) return static_cast<std::size_t>(size);
    auto const fine = static_cast<std::size_t>(size >> (power - kFineBits));  // 32 .. 63
    return (static_cast<std::size_t>(power - kFineBits) << kFineBits) + fine;
  }

  // Distinct for distinct nodes: an odd factor permutes the 32-bit integers.
  static std::uint32_t priority(Index node) { return node * 0x9E3779B1u; }

  Size size(Index node) const { return nodes_[node].block.size; }

  bool before(Index a, Index b) const {
    Block const& x = nodes_[a].block;
    Block const& y = nodes_[b].block;
    return x.size != y.size ? x.size < y.size : x.address < y.address;
  }

  Index* child(Index at, Index node) {
    return before(node, at) ? &nodes_[at].left : &nodes_[at].right;
  }

  void mark(std::size_t bin) {
    marks_[bin / 64] |= std::uint64_t{1} << (bin % 64);
    words_ |= std::uint64_t{1} << (bin / 64);
  }

  // Without branches: whether a bin runs empty is anyone's guess.
  void unmark_if_empty(std::size_t bin) {
    std::uint64_t& word = marks_[bin / 64];
    word &= ~(std::uint64_t{roots_[bin] == kNone} << (bin % 64));
    words_ &= ~(std::uint64_t{word == 0} << (bin / 64));
  }

  // The first bin from `from` on that holds a block, or kBins.
  std::size_t first_marked(std::size_t from) const {
    std::size_t word = from / 64;
    std::uint64_t bits = marks_[word] & (~std::uint64_t{0} << (from % 64));
    if (bits == 0) {
      std::uint64_t const later = word == 63 ? 0 : words_ & (~std::uint64_t{0} << (word + 1));
      if (later == 0) return kBins;
      word = static_cast<std::size_t>(std::countr_zero(later));
      bits = marks_[word];
    }
    return 64 * word + static_cast<std::size_t>(std::countr_zero(bits));
  }

  Nodes& nodes_;
  std::array<Index, kBins> roots_;
  std::array<std::uint64_t, kBins / 64> marks_ = {};
  std::uint64_t words_ = 0;
};

}  // namespace allocbench

// parts/block_tree.hpp: free blocks in best-fit order, for many blocks of similar sizes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "parts/node.hpp"

namespace allocbench {

// The best-fit order: by size, then by rank, then by address.
struct FitKey {
  Address address = 0;
  std::uint64_t rank = 0;
  Size size = 0;  // less than 2^63

  // Compares without branches, which would be unpredictable: as if both keys were numbers of 192
  // bits, with a borrow from the lowest 64.
  friend bool operator<(FitKey const& a, FitKey const& b) {
    return a.high() < b.high() + (a.address < b.address);
  }

 private:
  __extension__ using Wide = unsigned __int128;
  Wide high() const { return static_cast<Wide>(size) << 64 | rank; }
};

// A B+ tree of blocks. The keys are in its pages, so a search of n blocks reads O(log n) pages and
// none of the blocks. An inner page has a lower bound for each child. A page is split in half when
// it is full, and removed when it is empty. Every operation takes O(log n) time, where n is the
// highest number of blocks so far. (Bayer and McCreight, Organization and maintenance of large
// ordered indexes, Acta Informatica 1, 1972; Johnson and Shasha, B-trees with inserts and deletes:
// why free-at-empty is better than merge-at-half, JCSS 47, 1993. Order of the entries of a page as
// a permutation: Mao, Kohler and Morris, Cache craftiness for fast multicore key-value storage,
// EuroSys 2012.)
class BlockTree {
 public:
  // The key must not be in the tree.
  void insert(FitKey const& key, Index block) {
    if (root_ == kNone) root_ = pages_.put({});
    Path path = descend(key);
    for (std::size_t level = 0; level < height_; ++level)
      pages_[path[level].page].lower_bound_of(path[level].position, key);
    Entry entry{key, block};
    for (std::size_t level = height_;; --level) {
      auto const [page, child] = path[level];
      std::size_t const position = level == height_ ? child : child + 1;
      if (pages_[page].count < kMost) return pages_[page].put(position, entry);
      Index const upper = split(page);
      if (position <= kHalf)
        pages_[page].put(position, entry);
      else
        pages_[upper].put(position - kHalf, entry);
      entry = {pages_[upper].at(0).key, upper};
      if (level == 0) return grow(entry);
    }
  }

  // The key must be in the tree.
  void erase(FitKey const& key) {
    Path const path = descend(key);
    for (std::size_t level = height_;; --level) {
      Page& page = pages_[path[level].page];
      page.take(path[level].position);
      if (page.count > 0) break;
      pages_.drop(path[level].page);
      if (level == 0) {
        root_ = kNone;
        height_ = 0;
        return;
      }
    }
    for (; height_ > 0 && pages_[root_].count == 1; --height_) {
      pages_.drop(root_);
      root_ = pages_[root_].at(0).value;
    }
  }

  // The first block whose key is not below `key`, or kNone.
  Index first_from(FitKey const& key) const {
    if (root_ == kNone) return kNone;
    Path const path = descend(key);
    std::size_t level = height_;
    std::size_t position = path[level].position;
    while (position == pages_[path[level].page].count) {
      if (level == 0) return kNone;
      position = path[--level].position + 1;
    }
    Index value = pages_[path[level].page].at(position).value;
    for (; level < height_; ++level) value = pages_[value].at(0).value;
    return value;
  }

  // The last block whose key is below `key`, or kNone.
  Index last_before(FitKey const& key) const {
    if (root_ == kNone) return kNone;
    Path const path = descend(key);
    std::size_t level = height_;
    while (path[level].position == 0) {
      if (level == 0) return kNone;
      --level;
    }
    Index value = pages_[path[level].page].at(path[level].position - 1).value;
    for (; level < height_; ++level) value = pages_[value].at(pages_[value].count - 1).value;
    return value;
  }

  // Pages visited so far.
  std::uint64_t search_steps() const { return search_steps_; }

 private:
  static constexpr std::size_t kMost = 16;
  static constexpr std::size_t kHalf = kMost / 2;
  // A page splits only after half of its children have split since it was made, so a tree of this
  // height would have taken 8^15 inserts.
  static constexpr std::size_t kHighest = 16;

  struct Entry {
    FitKey key;
    Index value;  // in a leaf a block, otherwise a page
  };

  // The entries are not moved: `order` has their slots in the order of their keys, four bits each,
  // followed by the unused slots. The keys of unused slots are above all others. While all keys
  // have the size and rank of the first one, the page is uniform: their addresses order them, and
  // `sizes` and `ranks`, in cache lines that are then not read, are unspecified.
  struct alignas(64) Page {
    std::uint64_t order = 0xfedcba9876543210;
    std::uint32_t count = 0;
    bool uniform = true;
    Size size = 0;  // of a uniform page
    std::uint64_t rank = 0;
    std::array<Index, kMost> values = {};
    std::array<Address, kMost> addresses = filled(kLastAddress);
    std::array<std::uint64_t, kMost> ranks = {};
    std::array<Size, kMost> sizes = {};

    Entry at(std::size_t position) const {
      std::size_t const slot = slot_at(position);
      return {key_in(slot), values[slot]};
    }
    void put(std::size_t position, Entry const& entry) {
      std::size_t const slot = slot_at(count);
      set(slot, entry.key);
      values[slot] = entry.value;
      std::uint64_t const moved = below(count++) & ~below(position);
      std::uint64_t const kept = ~below(count) | below(position);
      order = (order & kept) | (order & moved) << 4 | std::uint64_t{slot} << (4 * position);
    }
    void take(std::size_t position) {
      std::size_t const slot = slot_at(position);
      addresses[slot] = kLastAddress;
      if (!uniform) sizes[slot] = kUnusedSize;
      std::uint64_t const moved = below(count) & ~below(position + 1);
      std::uint64_t const kept = ~below(count--) | below(position);
      order = (order & kept) | (order & moved) >> 4 | std::uint64_t{slot} << (4 * count);
    }
    void lower_bound_of(std::size_t position, FitKey const& key) {
      std::size_t const slot = slot_at(position);
      if (key < key_in(slot)) set(slot, key);
    }
    // The number of keys below `key`, and of those not above it. Comparing all of them is faster
    // than a binary search, in which each step waits for the one before.
    std::uint32_t keys_below(FitKey const& key) const {
      std::uint32_t number = 0;
      if (uniform) {
        if (!matches(key)) return FitKey{0, rank, size} < key ? count : 0;
        for (Address const address : addresses) number += address < key.address;
      } else {
        for (std::size_t slot = 0; slot < kMost; ++slot) number += stored(slot) < key;
      }
      return number;
    }
    std::uint32_t keys_not_above(FitKey const& key) const {
      std::uint32_t above = 0;
      if (uniform) {
        if (!matches(key)) return FitKey{0, rank, size} < key ? count : 0;
        for (Address const address : addresses) above += key.address < address;
      } else {
        for (std::size_t slot = 0; slot < kMost; ++slot) above += key < stored(slot);
      }
      return kMost - above;
    }
    // Called after many keys have been taken: all that are left may have one size and rank.
    void find_uniform() {
      FitKey const first = at(0).key;
      for (std::size_t position = 1; position < count; ++position) {
        FitKey const other = at(position).key;
        if (other.size != first.size || other.rank != first.rank) return;
      }
      uniform = true;
      size = first.size;
      rank = first.rank;
    }
    void prefetch() const {
      constexpr std::size_t kOfUniform = offsetof(Page, ranks);
      for (std::size_t byte = 0; byte < kOfUniform; byte += 64)
        __builtin_prefetch(reinterpret_cast<char const*>(this) + byte);
    }

   private:
    static constexpr Size kUnusedSize = Size{1} << 63;
    static constexpr Address kLastAddress = ~Address{0};
    static constexpr std::array<Address, kMost> filled(Address address) {
      std::array<Address, kMost> unused;
      unused.fill(address);
      return unused;
    }
    bool matches(FitKey const& key) const { return key.size == size && key.rank == rank; }
    FitKey stored(std::size_t slot) const { return {addresses[slot], ranks[slot], sizes[slot]}; }
    FitKey key_in(std::size_t slot) const {
      return uniform ? FitKey{addresses[slot], rank, size} : stored(slot);
    }
    void set(std::size_t slot, FitKey const& key) {
      if (count == 0) {
        uniform = true;
        size = key.size;
        rank = key.rank;
      } else if (uniform && !matches(key)) {
        uniform = false;
        sizes.fill(kUnusedSize);
        for (std::size_t position = 0; position < count; ++position) {
          ranks[slot_at(position)] = rank;
          sizes[slot_at(position)] = size;
        }
      }
      addresses[slot] = key.address;
      if (uniform) return;
      ranks[slot] = key.rank;
      sizes[slot] = key.size;
    }
    std::size_t slot_at(std::size_t position) const { return order >> (4 * position) & 15; }
    // The bits of the positions below this one.
    static std::uint64_t below(std::size_t position) {
      return position == kMost ? ~std::uint64_t{0} : (std::uint64_t{1} << (4 * position)) - 1;
    }
  };

  // From the root to a leaf: the page of each level and the position of the child in it; in the
  // leaf, the number of keys below the key.
  struct Step {
    Index page;
    std::uint32_t position;
  };
  using Path = std::array<Step, kHighest>;

  Path descend(FitKey const& key) const {
    Path path;
    Index page = root_;
    for (std::size_t level = 0; level < height_; ++level) {
      std::uint32_t const not_above = pages_[page].keys_not_above(key);
      path[level] = {page, not_above - (not_above > 0)};
      page = pages_[page].at(path[level].position).value;
      pages_[page].prefetch();
    }
    path[height_] = {page, pages_[page].keys_below(key)};
    search_steps_ += height_ + 1;
    return path;
  }

  // Moves the upper half of a full page to a new one.
  Index split(Index page) {
    Index const upper = pages_.put({});
    for (std::size_t position = kMost; position-- > kHalf;) {
      pages_[upper].put(0, pages_[page].at(position));
      pages_[page].take(position);
    }
    if (!pages_[page].uniform) pages_[page].find_uniform();
    return upper;
  }

  // Makes a root of the old one and its other half.
  void grow(Entry const& upper) {
    Index const root = pages_.put({});
    pages_[root].put(0, {pages_[root_].at(0).key, root_});
    pages_[root].put(1, upper);
    root_ = root;
    ++height_;
  }

  Slots<Page> pages_;
  Index root_ = kNone;
  std::size_t height_ = 0;  // levels of inner pages
  mutable std::uint64_t search_steps_ = 0;
};

}  // namespace allocbench

// strategies/rmm_arena.hpp: RMM's arenas, one per stream, over a fixed piece of the device.
// SPDX-License-Identifier: Apache-2.0
//
// The first request obtains the whole arena from the device; it never grows. (If the device refuses
// half of its memory, less is requested; RMM raises an error.) It is cut into
// superblocks of at least 1 MiB, each with its own free blocks, which coalesce inside of it. A
// request of at most 1 MiB takes a superblock of its stream, or moves one from the global arena to
// the stream; a larger request takes a superblock of the global arena. Both choose the superblock,
// and in it the block, at the lowest address that fits. Only the global arena splits and coalesces
// superblocks, and only those without a live block. When a request fails, all superblocks return to
// the global arena, and the request is retried. RMM returns memory only when the arena is
// destroyed; here a trim returns an arena without live blocks.
// A request takes O(n / 64) time for n superblocks, and O(f) for the f free blocks of one of them.
//
// Source: arena_memory_resource in RMM 25.04, built without RMM_ARENA_USE_SIZE_CLASSES.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/allocator.hpp"
#include "core/types.hpp"
#include "parts/address_map.hpp"
#include "parts/node.hpp"

namespace allocbench {

struct FreeRange {
  Address address;
  Size size;
};

struct Superblock {
  Address address;
  Size size;
  std::vector<FreeRange> free = {};  // in order of address
  Size largest = 0;                  // of `free`

  Superblock(Address address, Size size)
      : address(address), size(size), free{{address, size}}, largest(size) {}

  bool empty() const { return largest == size; }
};

// Superblocks lie in leaves, in order of address. A search looks at the largest free block of each
// leaf, and then of each superblock in one leaf, so these lie next to each other. A place is valid
// until a superblock is added, or one at a lower address is removed.
class Superblocks {
 public:
  struct Place {
    std::size_t leaf = SIZE_MAX, slot = 0;
    explicit operator bool() const { return leaf != SIZE_MAX; }
  };

  Superblock& operator[](Place place) { return *leaves_[place.leaf].blocks[place.slot]; }

  // The first superblock with room for `size` bytes; counts what is looked at before it.
  Place find_room(Size size, std::uint64_t& steps) const {
    std::size_t const leaf = first_with(largest_, size);
    steps += leaf;
    if (leaf == leaves_.size()) return {};
    std::size_t const slot = first_with(leaves_[leaf].largest, size);
    steps += slot;
    return {leaf, slot};
  }

  // The superblock around an address.
  Place find_around(Address address) const {
    std::size_t const after = upper_bound(begin_, address);
    if (after == 0) return {};
    Leaf const& leaf = leaves_[after - 1];
    std::size_t const slot = upper_bound(leaf.begin, address) - 1;
    if (address >= leaf.begin[slot] + leaf.blocks[slot]->size) return {};
    return {after - 1, slot};
  }

  Place after(Place place) const {
    if (place.slot + 1 < leaves_[place.leaf].begin.size()) return {place.leaf, place.slot + 1};
    return place.leaf + 1 < leaves_.size() ? Place{place.leaf + 1, 0} : Place{};
  }
  Place before(Place place) const {
    if (place.slot > 0) return {place.leaf, place.slot - 1};
    return place.leaf > 0 ? last(place.leaf - 1) : Place{};
  }
  Place last() const { return leaves_.empty() ? Place{} : last(leaves_.size() - 1); }

  // To be called after a change of `largest`.
  void update(Place place) {
    Size& known = leaves_[place.leaf].largest[place.slot];
    Size& largest = largest_[place.leaf];
    Size const before = std::exchange(known, (*this)[place].largest);
    if (known >= largest)
      largest = known;
    else if (before == largest)
      sum_up(place.leaf);
  }

  Place add(std::unique_ptr<Superblock> superblock) {
    if (leaves_.empty()) insert_leaf(0, {});
    std::size_t const after = upper_bound(begin_, superblock->address);
    std::size_t const leaf = after == 0 ? 0 : after - 1;
    Leaf& into = leaves_[leaf];
    std::size_t const slot = upper_bound(into.begin, superblock->address);
    into.insert(slot, std::move(superblock));
    if (into.begin.size() <= kMostInLeaf) {
      sum_up(leaf);
      return {leaf, slot};
    }
    std::size_t const kept = kMostInLeaf / 2;
    insert_leaf(leaf + 1, into.split(kept));
    sum_up(leaf);
    return slot < kept ? Place{leaf, slot} : Place{leaf + 1, slot - kept};
  }

  std::unique_ptr<Superblock> remove(Place place) {
    std::unique_ptr<Superblock> superblock = leaves_[place.leaf].remove(place.slot);
    if (leaves_[place.leaf].begin.empty())
      erase_leaf(place.leaf);
    else
      sum_up(place.leaf);
    return superblock;
  }

  void clear() { *this = {}; }

  template <class Visit>
  void for_each(Visit visit) const {
    for (Leaf const& leaf : leaves_)
      for (auto const& superblock : leaf.blocks) visit(*superblock);
  }

 private:
  static constexpr std::size_t kMostInLeaf = 64;

  struct Leaf {
    std::vector<Address> begin;
    std::vector<Size> largest;
    std::vector<std::unique_ptr<Superblock>> blocks;

    void insert(std::size_t slot, std::unique_ptr<Superblock> superblock) {
      auto const at = static_cast<std::ptrdiff_t>(slot);
      begin.insert(begin.begin() + at, superblock->address);
      largest.insert(largest.begin() + at, superblock->largest);
      blocks.insert(blocks.begin() + at, std::move(superblock));
    }

    std::unique_ptr<Superblock> remove(std::size_t slot) {
      auto const at = static_cast<std::ptrdiff_t>(slot);
      std::unique_ptr<Superblock> superblock = std::move(blocks[slot]);
      begin.erase(begin.begin() + at);
      largest.erase(largest.begin() + at);
      blocks.erase(blocks.begin() + at);
      return superblock;
    }

    // Takes out all but the first `kept` superblocks.
    Leaf split(std::size_t kept) {
      Leaf rest;
      for (std::size_t slot = kept; slot < begin.size(); ++slot)
        rest.insert(slot - kept, std::move(blocks[slot]));
      begin.resize(kept);
      largest.resize(kept);
      blocks.resize(kept);
      return rest;
    }
  };

  static std::size_t first_with(std::vector<Size> const& rooms, Size size) {
    auto const found = std::ranges::find_if(rooms, [&](Size room) { return room >= size; });
    return static_cast<std::size_t>(found - rooms.begin());
  }
  static std::size_t upper_bound(std::vector<Address> const& begins, Address address) {
    return static_cast<std::size_t>(std::ranges::upper_bound(begins, address) - begins.begin());
  }

  Place last(std::size_t leaf) const { return {leaf, leaves_[leaf].begin.size() - 1}; }

  // Sets what is known of a leaf with superblocks.
  void sum_up(std::size_t leaf) {
    begin_[leaf] = leaves_[leaf].begin.front();
    largest_[leaf] = *std::ranges::max_element(leaves_[leaf].largest);
  }

  void insert_leaf(std::size_t place, Leaf leaf) {
    auto const at = static_cast<std::ptrdiff_t>(place);
    begin_.insert(begin_.begin() + at, Address{});
    largest_.insert(largest_.begin() + at, Size{});
    leaves_.insert(leaves_.begin() + at, std::move(leaf));
    if (!leaves_[place].begin.empty()) sum_up(place);
  }

  void erase_leaf(std::size_t place) {
    auto const at = static_cast<std::ptrdiff_t>(place);
    begin_.erase(begin_.begin() + at);
    largest_.erase(largest_.begin() + at);
    leaves_.erase(leaves_.begin() + at);
  }

  std::vector<Address> begin_;  // of the first superblock of each leaf
  std::vector<Size> largest_;   // of all superblocks of each leaf
  std::vector<Leaf> leaves_;
};

class RmmArena : public Allocator {
 public:
  static constexpr Size kAlignment = 256;
  static constexpr Size kSmallestSuperblock = kMiB;
  static constexpr Option options[] = {
      {"arena_size", OptionType::kBytes, "",
       "bytes of the arena, at least 1 MiB; default: half of the memory available at the first "
       "request"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "rmm_arena",
      .summary = "superblocks for each stream, from one piece that is half of the device (RMM)",
      .worst_case = "the free parts of superblocks that hold one small block",
      .reference = "arena_memory_resource of RMM",
      .options = options,
      .largest_request =
          [](Size capacity) {
            Size const arena = round_down(capacity / 2, kAlignment);
            return arena < kSmallestSuperblock ? 0 : arena;
          },
      .exemption = "the arena is half of the device",
  };

  RmmArena(Device& device, Options const& given);
  StrategyInfo const& info() const override { return strategy; }

 protected:
  Block do_allocate(Size requested, Stream stream) override;
  Block do_deallocate(Address address, Stream stream) override;
  void do_trim() override;
  std::vector<Segment> do_snapshot() const override;
  Size do_largest_free() const override;
  void do_check() const override;
  Counters do_counters() const override;

 private:
  bool open();
  Address place(Size size, Stream stream);
  Superblocks::Place acquire_superblock(Size size);
  void give_to_global(std::unique_ptr<Superblock> superblock);
  void defragment();
  std::vector<Superblock const*> in_order() const;

  Size arena_size_;  // 0: by default
  Segment arena_;    // size 0: not obtained; its list of blocks stays empty
  Superblocks global_;
  std::map<Stream, Superblocks> by_stream_;
  Nodes nodes_;  // the allocated blocks
  AddressMap allocated_;
  std::uint64_t search_steps_ = 0;
};

}  // namespace allocbench

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
#include "core/errors.hpp"
#include "parts/address_map.hpp"

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

  [[gnu::noinline]] Place add(std::unique_ptr<Superblock> superblock) {
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

  RmmArena(Device& device, Options const& given)
      : Allocator(device),
        arena_size_(given.given("arena_size") ? round_down(given.bytes("arena_size"), kAlignment)
                                              : 0) {
    if (given.given("arena_size") && arena_size_ < kSmallestSuperblock)
      given.reject("arena_size", "must be at least 1 MiB");
  }

  StrategyInfo const& info() const override { return strategy; }

 protected:
  [[gnu::flatten]] Block do_allocate(Size requested, Stream stream) override {
    Size const size = round_up(requested, kAlignment);
    if (arena_.size == 0 && (!device().has(size) || !open())) return {};
    Address address = place(size, stream);
    if (address == 0) {
      count_retry();
      defragment();
      address = place(size, stream);
    }
    if (address == 0) return {};
    Index const node = nodes_.create(address, size);
    nodes_[node].block.requested = requested;
    allocated_.insert(address, node);
    return nodes_[node].block;
  }

  [[gnu::flatten]] Block do_deallocate(Address address, Stream) override {
    Index const node = allocated_.erase(address);
    if (node == kNone) return {};
    Block const freed = nodes_[node].block;
    nodes_.drop(node);
    auto const free_in = [&](Superblocks& superblocks, Superblocks::Place place) {
      Superblock& superblock = superblocks[place];
      Size const joined = give(superblock.free, address, freed.size);
      superblock.largest = std::max(superblock.largest, joined);
      superblocks.update(place);
    };
    if (auto const place = global_.find_around(address)) {
      free_in(global_, place);
      if (global_[place].empty()) give_to_global(global_.remove(place));
      return freed;
    }
    for (auto& [stream, superblocks] : by_stream_)
      if (auto const place = superblocks.find_around(address)) {
        free_in(superblocks, place);
        break;
      }
    return freed;
  }

  void do_trim() override {
    if (arena_.size == 0 || allocated_.size() > 0 || !returns_memory()) return;
    release(arena_.address, arena_.size);
    arena_ = {};
    global_.clear();
    by_stream_.clear();
  }

  std::vector<Segment> do_snapshot() const override {
    if (arena_.size == 0) return {};
    std::vector<Block> blocks;
    allocated_.for_each([&](Address, Index node) { blocks.push_back(nodes_[node].block); });
    for (Superblock const* superblock : in_order())
      for (auto const& [address, size] : superblock->free) blocks.push_back({address, size, 0});
    std::ranges::sort(blocks, {}, &Block::address);
    return {{arena_.address, arena_.size, std::move(blocks)}};
  }

  Size do_largest_free() const override {
    Size largest = 0;
    for (Superblock const* superblock : in_order())
      largest = std::max(largest, superblock->largest);
    return largest;
  }

  void do_check() const override {
    Address position = arena_.address;
    for (Superblock const* superblock : in_order()) {
      Address const start = superblock->address;
      require(start == position, "superblocks tile the arena");
      require(superblock->size >= kSmallestSuperblock, "a superblock has at least 1 MiB");
      require(superblock->largest == largest_of(superblock->free),
              "a superblock knows its largest free block");
      Address end = 0;
      for (auto const& [address, size] : superblock->free) {
        require(address != end, "free neighbors in a superblock are coalesced");
        require(address >= start && address + size <= start + superblock->size,
                "a free block is inside its superblock");
        end = address + size;
      }
      position = start + superblock->size;
    }
    require(position == arena_.address + arena_.size, "superblocks tile the arena");
  }

  Counters do_counters() const override {
    return {{"search_steps", search_steps_ + allocated_.search_steps()}};
  }

 private:
  static Size largest_of(std::vector<FreeRange> const& free) {
    Size largest = 0;
    for (FreeRange const& range : free) largest = std::max(largest, range.size);
    return largest;
  }

  // Takes the first `size` bytes of the lowest free block that is large enough. There is one.
  static Address take(Superblock& superblock, Size size) {
    auto& free = superblock.free;
    auto const found =
        std::ranges::find_if(free, [&](FreeRange const& range) { return range.size >= size; });
    auto const [address, whole] = *found;
    if (whole > size)
      *found = {address + size, whole - size};
    else
      free.erase(found);
    if (whole == superblock.largest) superblock.largest = largest_of(free);
    return address;
  }

  // Returns the size of the free block that contains the range afterwards.
  static Size give(std::vector<FreeRange>& free, Address address, Size size) {
    auto const next = std::ranges::lower_bound(free, address, {}, &FreeRange::address);
    bool const joins_next = next != free.end() && address + size == next->address;
    bool const joins_previous =
        next != free.begin() && std::prev(next)->address + std::prev(next)->size == address;
    if (joins_previous) {
      FreeRange& previous = *std::prev(next);
      previous.size += size + (joins_next ? next->size : 0);
      Size const joined = previous.size;
      if (joins_next) free.erase(next);
      return joined;
    }
    if (joins_next) return (*next = {address, next->size + size}).size;
    free.insert(next, {address, size});
    return size;
  }

  // Obtains the arena.
  [[gnu::noinline]] bool open() {
    Size const wanted = arena_size_ != 0 ? arena_size_ : round_down(room() / 2, kAlignment);
    if (wanted < kSmallestSuperblock) return false;
    Size const least = arena_size_ != 0 ? arena_size_ : kSmallestSuperblock;
    auto const [address, size] = acquire_between(least, wanted, kAlignment);
    if (address == 0) return false;
    arena_ = {address, size, {}};
    global_.add(std::make_unique<Superblock>(address, size));
    return true;
  }

  // Returns 0 if no superblock has room.
  Address place(Size size, Stream stream) {
    bool const large = size > kSmallestSuperblock;
    Superblocks& superblocks = large ? global_ : by_stream_[stream];
    Superblocks::Place found;
    if (!large) found = superblocks.find_room(size, search_steps_);
    if (!found) {
      found = acquire_superblock(size);
      if (!found) return 0;
      if (!large) found = superblocks.add(global_.remove(found));
    }
    Address const address = take(superblocks[found], size);
    superblocks.update(found);
    return address;
  }

  // The lowest superblock of the global arena with room for `size` bytes, cut to what is needed if
  // it is empty; nowhere if no superblock has room.
  Superblocks::Place acquire_superblock(Size size) {
    Superblocks::Place const found = global_.find_room(size, search_steps_);
    if (!found) return {};
    Superblock& superblock = global_[found];
    Size const least = std::max(kSmallestSuperblock, size);
    if (superblock.empty() && superblock.size >= least + kSmallestSuperblock) {
      Size const left = superblock.size - least;
      Address const rest = superblock.address + least;
      superblock = {superblock.address, least};
      global_.update(found);
      Superblocks::Place const added = global_.add(std::make_unique<Superblock>(rest, left));
      return global_.before(added);
    }
    return found;
  }

  // Adds a superblock to the global arena. It merges with its neighbors if they are all empty.
  void give_to_global(std::unique_ptr<Superblock> superblock) {
    // Merges a superblock with the next one, if both are empty and adjacent.
    auto const merge = [&](Superblocks::Place place) {
      Superblocks::Place const next = global_.after(place);
      if (!next) return;
      Superblock &low = global_[place], &high = global_[next];
      if (!low.empty() || !high.empty() || low.address + low.size != high.address) return;
      low = {low.address, low.size + high.size};
      global_.update(place);
      global_.remove(next);
    };
    Superblocks::Place const place = global_.add(std::move(superblock));
    merge(place);
    if (auto const previous = global_.before(place)) merge(previous);
  }

  // All superblocks return to the global arena, those with live blocks too.
  [[gnu::noinline]] void defragment() {
    for (auto& [stream, superblocks] : by_stream_)
      while (auto const last = superblocks.last()) give_to_global(superblocks.remove(last));
  }

  std::vector<Superblock const*> in_order() const {
    std::vector<Superblock const*> all;
    auto const add = [&](Superblocks const& superblocks) {
      superblocks.for_each([&](Superblock const& superblock) { all.push_back(&superblock); });
    };
    add(global_);
    for (auto const& [stream, superblocks] : by_stream_) add(superblocks);
    std::ranges::sort(all, {}, &Superblock::address);
    return all;
  }

  Size arena_size_;  // 0: by default
  Segment arena_;    // size 0: not obtained; its list of blocks stays empty
  Superblocks global_;
  std::map<Stream, Superblocks> by_stream_;
  Nodes nodes_;  // the allocated blocks
  AddressMap allocated_;
  std::uint64_t search_steps_ = 0;
};

}  // namespace allocbench

// strategies/rmm_arena.cpp: RMM's arenas, one per stream, over a fixed piece of the device.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/rmm_arena.hpp"

#include <algorithm>
#include <iterator>

#include "core/errors.hpp"

namespace allocbench {
namespace {

Size largest_of(std::vector<FreeRange> const& free) {
  Size largest = 0;
  for (FreeRange const& range : free) largest = std::max(largest, range.size);
  return largest;
}

// Takes the first `size` bytes of the lowest free block that is large enough. There is one.
Address take(Superblock& superblock, Size size) {
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
Size give(std::vector<FreeRange>& free, Address address, Size size) {
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

}  // namespace

RmmArena::RmmArena(Device& device, Options const& given)
    : Allocator(device),
      arena_size_(given.given("arena_size") ? round_down(given.bytes("arena_size"), kAlignment)
                                            : 0) {
  if (given.given("arena_size") && arena_size_ < kSmallestSuperblock)
    given.reject("arena_size", "must be at least 1 MiB");
}

Block RmmArena::do_allocate(Size requested, Stream stream) {
  Size const size = round_up(requested, kAlignment);
  if (arena_.size == 0 && (size > device().capacity() || !open())) return {};
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

// Obtains the arena.
bool RmmArena::open() {
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
Address RmmArena::place(Size size, Stream stream) {
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

// The lowest superblock of the global arena with room for `size` bytes, cut to what is needed if it
// is empty; nowhere if no superblock has room.
Superblocks::Place RmmArena::acquire_superblock(Size size) {
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

Block RmmArena::do_deallocate(Address address, Stream) {
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

// Adds a superblock to the global arena. It merges with its neighbors if they are all empty.
void RmmArena::give_to_global(std::unique_ptr<Superblock> superblock) {
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
void RmmArena::defragment() {
  for (auto& [stream, superblocks] : by_stream_)
    while (auto const last = superblocks.last()) give_to_global(superblocks.remove(last));
}

void RmmArena::do_trim() {
  if (arena_.size == 0 || allocated_.size() > 0 || !returns_memory()) return;
  release(arena_.address, arena_.size);
  arena_ = {};
  global_.clear();
  by_stream_.clear();
}

std::vector<Superblock const*> RmmArena::in_order() const {
  std::vector<Superblock const*> all;
  auto const add = [&](Superblocks const& superblocks) {
    superblocks.for_each([&](Superblock const& superblock) { all.push_back(&superblock); });
  };
  add(global_);
  for (auto const& [stream, superblocks] : by_stream_) add(superblocks);
  std::ranges::sort(all, {}, &Superblock::address);
  return all;
}

std::vector<Segment> RmmArena::do_snapshot() const {
  if (arena_.size == 0) return {};
  std::vector<Block> blocks;
  allocated_.for_each([&](Address, Index node) { blocks.push_back(nodes_[node].block); });
  for (Superblock const* superblock : in_order())
    for (auto const& [address, size] : superblock->free) blocks.push_back({address, size, 0});
  std::ranges::sort(blocks, {}, &Block::address);
  return {{arena_.address, arena_.size, std::move(blocks)}};
}

Size RmmArena::do_largest_free() const {
  Size largest = 0;
  for (Superblock const* superblock : in_order()) largest = std::max(largest, superblock->largest);
  return largest;
}

void RmmArena::do_check() const {
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

Counters RmmArena::do_counters() const {
  return {{"search_steps", search_steps_ + allocated_.search_steps()}};
}

}  // namespace allocbench

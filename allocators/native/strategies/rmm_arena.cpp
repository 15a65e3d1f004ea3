// strategies/rmm_arena.cpp: RMM's arenas, one per stream, over a fixed piece of the device.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/rmm_arena.hpp"

#include <algorithm>
#include <iterator>

#include "core/errors.hpp"

namespace allocbench {
namespace {

using Free = std::map<Address, Size>;

Size largest_of(Free const& free) {
  Size largest = 0;
  for (auto const& [address, size] : free) largest = std::max(largest, size);
  return largest;
}

// Takes the first `size` bytes of the lowest free block that is large enough. There is one.
Address take(Free& free, Size size) {
  auto entry = free.begin();
  while (entry->second < size) ++entry;
  auto const [address, whole] = *entry;
  auto const hint = free.erase(entry);
  if (whole > size) free.emplace_hint(hint, address + size, whole - size);
  return address;
}

void give(Free& free, Address address, Size size) {
  auto next = free.lower_bound(address);
  if (next != free.end() && address + size == next->first) {
    size += next->second;
    next = free.erase(next);
  }
  if (next != free.begin()) {
    auto const previous = std::prev(next);
    if (previous->first + previous->second == address) {
      previous->second += size;
      return;
    }
  }
  free.emplace_hint(next, address, size);
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
  global_[address] = {size, {{address, size}}, size};
  return true;
}

// Returns 0 if no superblock has room.
Address RmmArena::place(Size size, Stream stream) {
  bool const large = size > kSmallestSuperblock;
  Superblocks& superblocks = large ? global_ : by_stream_[stream];
  auto entry = superblocks.end();
  if (!large)
    for (entry = superblocks.begin(); entry != superblocks.end(); ++entry, ++search_steps_)
      if (entry->second.largest >= size) break;
  if (entry == superblocks.end()) {
    entry = acquire_superblock(size);
    if (entry == global_.end()) return 0;
    if (!large) entry = superblocks.insert(global_.extract(entry)).position;
  }
  Superblock& superblock = entry->second;
  Address const address = take(superblock.free, size);
  superblock.largest = largest_of(superblock.free);
  return address;
}

// The lowest superblock of the global arena with room for `size` bytes, cut to what is needed if it
// is empty; end() if no superblock has room.
RmmArena::Superblocks::iterator RmmArena::acquire_superblock(Size size) {
  auto entry = global_.begin();
  for (; entry != global_.end() && entry->second.largest < size; ++entry) ++search_steps_;
  if (entry == global_.end()) return entry;
  auto& [address, superblock] = *entry;
  Size const least = std::max(kSmallestSuperblock, size);
  if (superblock.empty() && superblock.size >= least + kSmallestSuperblock) {
    Address const rest = address + least;
    Size const left = superblock.size - least;
    superblock = {least, {{address, least}}, least};
    global_[rest] = {left, {{rest, left}}, left};
  }
  return entry;
}

Block RmmArena::do_deallocate(Address address, Stream) {
  Index const node = allocated_.erase(address);
  if (node == kNone) return {};
  Block const freed = nodes_[node].block;
  nodes_.drop(node);
  auto const holds = [&](Superblocks& superblocks) {
    auto entry = superblocks.upper_bound(address);
    if (entry == superblocks.begin()) return superblocks.end();
    --entry;
    return address < entry->first + entry->second.size ? entry : superblocks.end();
  };
  auto const free_in = [&](Superblock& superblock) {
    give(superblock.free, address, freed.size);
    superblock.largest = largest_of(superblock.free);
  };
  if (auto const entry = holds(global_); entry != global_.end()) {
    free_in(entry->second);
    if (entry->second.empty()) give_to_global(global_.extract(entry));
    return freed;
  }
  for (auto& [stream, superblocks] : by_stream_)
    if (auto const entry = holds(superblocks); entry != superblocks.end()) {
      free_in(entry->second);
      break;
    }
  return freed;
}

// Adds a superblock to the global arena. It merges with its neighbors if they are all empty.
void RmmArena::give_to_global(Superblocks::node_type superblock) {
  auto const joins = [](Superblocks::value_type const& low, Superblocks::value_type const& high) {
    return low.second.empty() && high.second.empty() && low.first + low.second.size == high.first;
  };
  auto const merge = [](Superblocks::value_type& low, Size more) {
    Size const size = low.second.size + more;
    low.second = {size, {{low.first, size}}, size};
  };
  auto const entry = global_.insert(std::move(superblock)).position;
  if (auto const next = std::next(entry); next != global_.end() && joins(*entry, *next)) {
    merge(*entry, next->second.size);
    global_.erase(next);
  }
  if (entry == global_.begin()) return;
  if (auto const previous = std::prev(entry); joins(*previous, *entry)) {
    merge(*previous, entry->second.size);
    global_.erase(entry);
  }
}

// All superblocks return to the global arena, those with live blocks too.
void RmmArena::defragment() {
  for (auto& [stream, superblocks] : by_stream_)
    while (!superblocks.empty()) give_to_global(superblocks.extract(superblocks.begin()));
}

void RmmArena::do_trim() {
  if (arena_.size == 0 || allocated_.size() > 0 || !returns_memory()) return;
  release(arena_.address, arena_.size);
  arena_ = {};
  global_.clear();
  by_stream_.clear();
}

std::vector<std::pair<Address, RmmArena::Superblock const*>> RmmArena::in_order() const {
  std::vector<std::pair<Address, Superblock const*>> all;
  auto const add = [&](Superblocks const& superblocks) {
    for (auto const& [address, superblock] : superblocks) all.emplace_back(address, &superblock);
  };
  add(global_);
  for (auto const& [stream, superblocks] : by_stream_) add(superblocks);
  std::ranges::sort(all);
  return all;
}

std::vector<Segment> RmmArena::do_snapshot() const {
  if (arena_.size == 0) return {};
  std::vector<Block> blocks;
  allocated_.for_each([&](Address, Index node) { blocks.push_back(nodes_[node].block); });
  for (auto const& [start, superblock] : in_order())
    for (auto const& [address, size] : superblock->free) blocks.push_back({address, size, 0});
  std::ranges::sort(blocks, {}, &Block::address);
  return {{arena_.address, arena_.size, std::move(blocks)}};
}

Size RmmArena::do_largest_free() const {
  Size largest = 0;
  for (auto const& [start, superblock] : in_order())
    largest = std::max(largest, superblock->largest);
  return largest;
}

void RmmArena::do_check() const {
  Address position = arena_.address;
  for (auto const& [start, superblock] : in_order()) {
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

// strategies/caching.cpp: PyTorch's CUDACachingAllocator.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/caching.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/errors.hpp"

namespace allocbench {

Block Caching::do_allocate(Size requested, Stream stream) {
  if (!during_capture(stream)) {
    blocks_.free_deferred();
    blocks_.free_waiting();
  }
  Size const wanted = settings_.rounded(requested);
  PooledBlocks::StreamPools& pools = blocks_.of(stream);
  BlockPool& pool = wanted <= PytorchSettings::kSmall ? pools.small : pools.large;
  Index block = find(pool, wanted);
  if (block == kNone) block = obtain_or_lend(pool, wanted, stream);
  return block == kNone ? Block{} : take(block, wanted, requested);
}

// Not inlined, so that a request with a fit saves no registers for it.
[[gnu::noinline]] Index Caching::obtain_or_lend(BlockPool& pool, Size wanted, Stream stream) {
  if (settings_.collects() && returns_memory()) collect();
  if (settings_.throws_early && !settings_.limit &&
      !device().has(reserved() + settings_.segment(wanted)))
    return kNone;
  Index block = obtain(pool, wanted);
  if (block == kNone && settings_.rules.lends_first) block = lend(stream, wanted);
  if (block == kNone) block = obtain_after_release(pool, wanted, stream);
  if (block == kNone && !settings_.rules.lends_first) block = lend(stream, wanted);
  return block;
}

void Caching::do_trim() {
  blocks_.streams_done();
  blocks_.free_deferred();
  blocks_.free_waiting();
  std::vector<BlockPool*> large, small;
  for (auto* const pools : blocks_.changed(false, [](auto const*) { return true; })) {
    large.push_back(&pools->large);
    small.push_back(&pools->small);
  }
  release_free(large);
  release_free(small);
  if (!pools_->any_released()) return;
  auto const released = [&](auto const* one) {
    return pools_->released(pool_of(one->small.stream));
  };
  for (auto* const pools : blocks_.changed(true, released))
    release_free({&pools->small, &pools->large});
}

// Takes the best fit out of the pool, unless it is an oversize block and the request is below that
// size or would leave too much of it unused; no other block is tried.
Index Caching::find(BlockPool& pool, Size wanted) {
  if (settings_.collects() && !pool.small && pool_of(pool.stream) == 0) blocks_.tick();
  Index fit = pool.free.fit(wanted);
  if (settings_.expandable && fit != kNone) fit = roomier(pool, fit);
  while (!settings_.expandable && fit != kNone && expandable(fit)) fit = pool.free.next(fit);
  if (fit == kNone) return kNone;
  Size const size = blocks_.size(fit);
  bool const suits = wanted < settings_.max_split
                         ? size < settings_.max_split
                         : size < wanted + settings_.max_non_split_rounding;
  if (!suits) return kNone;
  pool.free.remove(fit);
  return fit;
}

// Moves on from the best fit, while it is in an expandable segment, as long as the next larger
// block can grow less. A block counts as large as it can grow into the unmapped addresses after it.
Index Caching::roomier(BlockPool const& pool, Index fit) const {
  auto const after = [&](Index block) {  // the addresses into which a block can grow, or kNone
    Index const next = blocks_[block].next;
    return next != kNone && !blocks_.facts(next).mapped ? next : kNone;
  };
  auto const room = [&](Index block) {
    Index const next = after(block);
    return blocks_.size(block) + (next == kNone ? 0 : blocks_.size(next));
  };
  auto const is_last = [&](Index block) {
    return after(block) != kNone && blocks_[after(block)].next == kNone;
  };
  for (Index next = kNone; expandable(fit); fit = next) {
    next = pool.free.next(fit);
    if (next == kNone) break;
    if (is_last(fit) && is_last(next))
      device().capacity();
    else if (is_last(fit))
      ask_addresses(fit, room(next) + 1);
    else if (is_last(next))
      ask_addresses(next, room(fit));
    if (room(next) >= room(fit)) break;
  }
  return fit;
}

// Allocates the front of a block that is in no pool, or all of it if the rest is too small.
Block Caching::take(Index block, Size wanted, Size requested) {
  BlockPool const& pool = *blocks_.facts(block).pool;
  Size const rest = blocks_.size(block) - wanted;
  bool const any_rest = settings_.expandable || pool.small;
  bool const worth = any_rest ? rest >= PytorchSettings::kRounding
                              : wanted < settings_.max_split && rest > PytorchSettings::kSmall;
  bool const split =
      worth && !(settings_.rules.knows_no_split && pools_->traits(pool_of(pool.stream)).no_split);
  if (!split) return blocks_.allocate(block, requested);
  Index const front = blocks_.split_front(block, wanted);
  blocks_.insert(block);
  return blocks_.allocate(front, requested);
}

// A block of memory that is new to the pool, or kNone. The device is not called if the memory would
// exceed the limit.
Index Caching::obtain(BlockPool& pool, Size wanted) {
  Size const segment = settings_.segment(wanted);
  if (settings_.limit && reserved() + segment > *settings_.limit) return kNone;
  if (settings_.expandable) return extend(pool, wanted);
  Address const address = acquire(segment);
  return address == 0 ? kNone : blocks_.create(address, segment, {.pool = &pool}, next_rank());
}

Index Caching::obtain_after_release(BlockPool& pool, Size wanted, Stream stream) {
  if (!returns_memory()) return kNone;
  Released const released = release_oversize(pool, wanted);
  if (released == Released::kPartOfSegment) return kNone;
  if (released == Released::kEnough)
    if (Index const block = obtain(pool, wanted); block != kNone) return block;
  if (during_capture(stream)) return kNone;
  do_trim();
  count_retry();
  return obtain(pool, wanted);
}

// The rank of a new segment; equal ranks let the address decide.
std::uint64_t Caching::next_rank() {
  return settings_.rules.ties == PytorchRules::Ties::kAddress ? 0 : blocks_.next_rank();
}

// Returns the best fit among the oversize blocks to the device or, if none is large enough, the
// largest ones. kEnough if the returned bytes suffice for the request; kPartOfSegment, and nothing
// more is returned, at a block that is only part of its segment.
Caching::Released Caching::release_oversize(BlockPool& pool, Size wanted) {
  if (settings_.max_split == PytorchSettings::kNoLimit) return Released::kTooLittle;
  Size const needed = std::max(wanted, settings_.max_split);
  Index const fit = pool.free.fit(needed);
  bool const single = fit != kNone && !expandable(fit);
  Index block = single ? fit : fit == kNone ? pool.free.last() : pool.free.previous(fit);
  Size released = 0;
  while (released < needed && block != kNone && blocks_.size(block) >= settings_.max_split) {
    Index const smaller = pool.free.previous(block);
    if (!expandable(block)) {
      if (!blocks_.whole(block)) return Released::kPartOfSegment;
      released += blocks_.size(block);
      release_segment(block);
    }
    block = smaller;
  }
  return released >= needed ? Released::kEnough : Released::kTooLittle;
}

// Returns the free segments of these pools to the device, then the free pages of expandable ones.
void Caching::release_free(std::vector<BlockPool*> const& pools) {
  std::vector<Index> expandable_blocks;
  for (BlockPool* const pool : pools)
    for (Index block = pool->free.first(), next; block != kNone; block = next) {
      next = pool->free.next(block);
      if (expandable(block))
        expandable_blocks.push_back(block);
      else if (blocks_.whole(block))
        release_segment(block);
    }
  for (Index const block : expandable_blocks) unmap_pages(block);
}

void Caching::release_segment(Index block) {
  blocks_.remove(block);
  release(blocks_[block].block.address, blocks_.size(block));
  blocks_.drop(block);
}

// Returns free segments of the large pools until reserved bytes are within the threshold. Each
// round returns the segments that have been free for at least the average time.
void Caching::collect() {
  auto const threshold =
      static_cast<Size>(settings_.collection_threshold * static_cast<double>(*settings_.limit));
  if (reserved() <= threshold) return;
  Size const target = reserved() - threshold;
  std::vector<Index> idle;
  double ages = 0;
  auto const age = [&](Index block) { return static_cast<double>(blocks_.age(block)); };
  for (auto const* const pools : blocks_.filled()) {
    if (pool_of(pools->small.stream) != 0) continue;
    FreeIndex const& free = pools->large.free;
    for (Index block = free.first(); block != kNone; block = free.next(block))
      if (blocks_.whole(block) && !expandable(block)) {
        idle.push_back(block);
        ages += age(block);
      }
  }
  Size released = 0;
  while (released < target && !idle.empty()) {
    double const average = ages / static_cast<double>(idle.size());
    auto const old =
        std::ranges::stable_partition(idle, [&](Index block) { return age(block) < average; });
    for (Index const block : old) {
      released += blocks_.size(block);
      ages -= age(block);
      release_segment(block);
    }
    idle.erase(old.begin(), old.end());
  }
}

void Caching::do_check() const {
  blocks_.check();
  require(!settings_.limit || settings_.expandable || changed_ || reserved() <= *settings_.limit,
          "the segments together stay below the limit");
}

bool Caching::adopt(std::vector<HeldSegment> const& layout) {
  return take_over(layout, [&] { return adopt_all(layout); });
}

bool Caching::adopt_all(std::vector<HeldSegment> const& layout) {
  if (std::ranges::any_of(layout, &HeldSegment::of_bfc)) return false;
  std::map<Address, std::vector<HeldSegment>> reservations;
  for (HeldSegment const& held : layout)
    if (held.reservation != 0) reservations[held.reservation].push_back(held);
  auto const consistent = [&](HeldSegment const& held) {
    Size const page = settings_.page(held.small);
    HeldSegment const& first = reservations.at(held.reservation).front();
    return held.stream == first.stream && held.small == first.small &&
           (held.segment.address - held.reservation) % page == 0 && held.segment.size % page == 0;
  };
  for (auto const& [address, ranges] : reservations)
    if (!std::ranges::all_of(ranges, consistent)) return false;

  std::vector<HeldSegment> by_rank = layout;
  std::ranges::stable_sort(by_rank, {}, &HeldSegment::rank);
  bool adopted = true;
  for (HeldSegment const& held : by_rank) {
    if (held.reservation == 0)
      adopted = adopted && adopt_segment(held);
    else if (auto const ranges = reservations.extract(held.reservation); !ranges.empty())
      adopted = adopted && adopt_reservation(ranges.mapped());
  }
  return adopted;
}

bool Caching::adopt_segment(HeldSegment const& held) {
  auto const& [address, size, blocks] = held.segment;
  if (!device().adopt(address, size, this)) return false;
  count_reserved(size);
  PooledBlocks::StreamPools& pools = blocks_.of(held.stream);
  Index const block = blocks_.create(
      address, size, {.pool = held.small ? &pools.small : &pools.large}, next_rank());
  blocks_.insert(block);
  blocks_.carve(block, blocks);
  return true;
}

// `ranges` are the mapped ranges of one reservation, in address order.
bool Caching::adopt_reservation(std::vector<HeldSegment> const& ranges) {
  HeldSegment const& first = ranges.front();
  Size const page = settings_.page(first.small);
  Segment const& last = ranges.back().segment;
  Size const end = last.address + last.size - first.reservation;
  Size const size = std::max(reservation_size(first.small), end);
  device().has(PytorchSettings::capacity_with(end, page));
  std::vector<Segment> mapped;
  for (HeldSegment const& range : ranges) mapped.push_back(range.segment);
  if (!device().adopt_pages(first.reservation, size, page, mapped, this)) return false;
  for (Segment const& range : mapped) count_reserved(range.size);
  PooledBlocks::StreamPools& pools = blocks_.of(first.stream);
  Index unmapped = blocks_.open({first.reservation, size, page},
                                first.small ? pools.small : pools.large, next_rank());
  for (Segment const& range : mapped) {
    Index const block = blocks_.remap(unmapped, {range.address, range.address + range.size});
    unmapped = blocks_[block].next;
    blocks_.carve(block, range.blocks);
  }
  return true;
}

// Takes a free block of `wanted` bytes or more out of its pool, after mapping the pages that it
// lacks. kNone if the device refuses; pages mapped until then stay mapped and free.
Index Caching::extend(BlockPool& pool, Size wanted) {
  Index block = find_extendable(pool, wanted);
  if (block == kNone) return kNone;
  if (!blocks_.facts(block).mapped && !map_front(block, std::min(blocks_.size(block), wanted)))
    return kNone;
  while (blocks_.size(block) < wanted) {
    Index const next = blocks_[block].next;  // unmapped: free neighbors have coalesced
    if (!map_front(next, std::min(wanted - blocks_.size(block), blocks_.size(next)))) return kNone;
    block = next;  // the mapped pages have coalesced with the block before them
  }
  blocks_.remove(block);
  return block;
}

// The lowest free block, mapped or not, that begins a free range of `wanted` bytes which is partly
// unmapped; if no such range exists, the block of a new expandable segment. kNone if that would be
// too small.
Index Caching::find_extendable(BlockPool& pool, Size wanted) {
  auto const is_free = [&](Index block) { return block != kNone && !blocks_.in_use(block); };
  for (auto const& [address, unmapped] : pool.unmapped) {
    Index const previous = blocks_[unmapped].previous;
    Index const begin = is_free(previous) ? previous : unmapped;
    Size room = 0;
    Index last = begin;
    for (Index block = begin; room < wanted && is_free(block); block = blocks_[block].next) {
      room += blocks_.size(block);
      last = block;
    }
    if (blocks_[last].next == kNone) ask_addresses(begin, wanted);
    if (room >= wanted) return begin;
  }
  bool const fits = !settings_.reserve || wanted <= reservation_size(pool.small);
  return fits ? open_reservation(pool) : kNone;
}

// Tells the device that a decision depends on whether there are this many addresses from a block to
// the end of its reservation, whose size follows from the capacity.
void Caching::ask_addresses(Index block, Size bytes) const {
  auto const& [start, size, page] = *blocks_.facts(block).reservation;
  Size const addresses = blocks_[block].block.address - start + bytes;
  device().has(PytorchSettings::capacity_with(addresses, page));
}

Index Caching::open_reservation(BlockPool& pool) {
  Size const size = reservation_size(pool.small);
  Address const address = reserve(size);
  if (address == 0) return kNone;
  return blocks_.open({address, size, settings_.page(pool.small)}, pool, next_rank());
}

// Maps the pages that hold the first `wanted` bytes of an unmapped block. They become a free block,
// which coalesces. False if the device refuses.
bool Caching::map_front(Index block, Size wanted) {
  Size const page = blocks_.facts(block).reservation->page;
  Size const size = round_up(wanted, page);
  Address const address = blocks_[block].block.address;
  if (!map(address, size, page)) return false;
  blocks_.remap(block, {address, address + size});
  return true;
}

// Unmaps the pages that lie wholly in a free block, and returns the reservation when none of its
// pages is mapped any more.
void Caching::unmap_pages(Index block) {
  auto const pages = blocks_.pages(block);
  if (pages.size() == 0) return;
  unmap(pages.begin, pages.size(), blocks_.facts(block).reservation->page);
  Index const unmapped = blocks_.remap(block, pages);
  if (blocks_.whole(unmapped)) unreserve(blocks_.close(unmapped));
}

void Caching::trim_pool(PoolId pool) {
  trim_by([&] {
    if (!pools_->released(pool)) return;
    blocks_.free_deferred();
    blocks_.free_waiting_of(pool);
    auto& all = blocks_.pools();
    for (auto one = all.lower_bound(in_pool(0, pool));
         one != all.end() && pool_of(one->first) == pool; ++one)
      release_free({&one->second.small, &one->second.large});
  });
}

// A free block of a MemPool made with use_on_oom, for a request outside of private pools.
Index Caching::lend(Stream stream, Size wanted) {
  if (pool_of(stream) != 0 || (settings_.expandable && !settings_.rules.lends_expandable))
    return kNone;
  for (PoolId const pool : pools_->lenders()) {
    if (!pools_->in_use(pool)) continue;
    PooledBlocks::StreamPools& pools = blocks_.of(in_pool(stream, pool));
    Index const block = find(wanted <= PytorchSettings::kSmall ? pools.small : pools.large, wanted);
    if (block != kNone) return block;
  }
  return kNone;
}

}  // namespace allocbench

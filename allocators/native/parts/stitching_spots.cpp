// parts/stitching_spots.cpp: where a block that fits nowhere may come to lie.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <limits>

#include "parts/stitching.hpp"

namespace allocbench {
namespace {

constexpr Size kNever = std::numeric_limits<Size>::max();
constexpr int kLookedAt = 32;  // of the largest free blocks

}  // namespace

// Of the places around unmapped ranges the one that lacks the fewest pages, the lowest of equals:
// each begins with the range or the free block before it, or ends with the free block behind it.
// Looked at are the ranges beside the largest free blocks; where none of them does, all.
Stitching::Spot Stitching::find_spot(Pool& pool, Size wanted) const {
  Spot best{kNone, {}, kNever};
  auto const consider = [&](Index first, Address begin) {
    Spot const spot = measured(first, {begin, begin + wanted}, best.missing);
    bool const lower = spot.missing == best.missing && begin < best.place.begin;
    if (spot.missing < best.missing || lower) best = spot;
  };
  auto const consider_range = [&](Index unmapped) {
    Index const before = blocks_[unmapped].previous;
    Index const first = is_free(before) ? before : unmapped;
    consider(first, blocks_[first].block.address);
    Index at = blocks_[unmapped].next;
    if (!is_free(at)) return;
    Address const end = blocks_[at].block.end();
    auto const reaches = [&] { return end - blocks_[at].block.address; };
    for (; reaches() < wanted && is_free(blocks_[at].previous); at = blocks_[at].previous)
      ++passed_;
    if (reaches() >= wanted) consider(at, end - wanted);
  };
  Index large = pool.free.last();
  for (int rest = kLookedAt; rest > 0 && large != kNone; large = pool.free.previous(large), --rest)
    for (Index const beside : {blocks_[large].previous, blocks_[large].next})
      if (is_free(beside)) consider_range(beside);
  if (best.first == kNone)
    for (auto const& [address, unmapped] : pool.unmapped) consider_range(unmapped);
  return best;
}

// A place that lacks more than `most` is none.
Stitching::Spot Stitching::measured(Index first, Range place, Size most) const {
  Size bytes = 0;
  for (Index at = first; is_free(at); at = blocks_[at].next) {
    ++passed_;
    bytes += missing(at, place).size();
    if (bytes > most) break;
    if (blocks_[at].block.end() >= place.end) return {first, place, bytes};
  }
  return {kNone, {}, kNever};
}

// The pages to be mapped in a free or unmapped block that the place touches.
Stitching::Range Stitching::missing(Index block, Range place) const {
  Block const& all = blocks_[block].block;
  if (blocks_.facts(block).mapped) return {all.address, all.address};
  Address const start = blocks_.facts(block).space->address;
  return {std::max(all.address, start + round_down(place.begin - start, page_)),
          std::min(all.end(), start + round_up(place.end - start, page_))};
}

// Twice the capacity always has room for one more block when it is empty, and mostly when it is
// not.
Stitching::Spot Stitching::new_space(Pool& pool, Size wanted) {
  Size const size = 2 * round_up(device().capacity(), page_);
  Address const address = reserve(size);
  if (address == 0) return {kNone, {}, kNever};
  return measured(blocks_.open({address, size, page_}, pool, 0), {address, address + wanted},
                  kNever);
}

// The block that the spot begins in, which pages unmapped next to it may have joined.
Index Stitching::first_of(Spot const& spot, Pool const& pool) const {
  auto const above = pool.unmapped.upper_bound(spot.place.begin);
  if (above == pool.unmapped.begin()) return spot.first;
  Index const unmapped = std::prev(above)->second;
  return blocks_[unmapped].block.end() > spot.place.begin ? unmapped : spot.first;
}

// The free block with all pages of the place, which begins in `first`, or kNone when the device
// refuses one; what was mapped by then stays, free.
Index Stitching::map_missing(Index first, Range place) {
  for (Index at = first;; at = blocks_[at].next) {
    if (Range const pages = missing(at, place); pages.size() > 0) {
      if (!map(pages.begin, pages.size(), page_)) return kNone;
      at = blocks_.remap(at, pages);
    }
    if (blocks_[at].block.end() >= place.end) return at;
  }
}

}  // namespace allocbench

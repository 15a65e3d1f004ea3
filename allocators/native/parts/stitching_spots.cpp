// parts/stitching_spots.cpp: finding a range of addresses for a block that no free block fits.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <limits>

#include "parts/stitching.hpp"

namespace allocbench {
namespace {

constexpr Size kNever = std::numeric_limits<Size>::max();
constexpr int kExamined = 32;  // number of the largest free blocks to examine first

}  // namespace

// Of the candidate ranges around unmapped blocks, the one that lacks the fewest pages and, among
// equals, has the lowest address. A candidate begins at the unmapped block or at the free block
// before it, or ends at the end of the free block after it. Examines the neighbors of the largest
// free blocks first, and all unmapped blocks only if there is no candidate among them.
Stitching::Spot Stitching::find_spot(BlockPool& pool, Size wanted) const {
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
    Index block = blocks_[unmapped].next;
    if (!is_free(block)) return;
    Address const end = blocks_[block].block.end();
    auto const reaches = [&] { return end - blocks_[block].block.address; };
    for (; reaches() < wanted && is_free(blocks_[block].previous); block = blocks_[block].previous)
      ++visited_;
    if (reaches() >= wanted) consider(block, end - wanted);
  };
  Index large = pool.free.last();
  for (int rest = kExamined; rest > 0 && large != kNone; large = pool.free.previous(large), --rest)
    for (Index const neighbor : {blocks_[large].previous, blocks_[large].next})
      if (is_free(neighbor)) consider_range(neighbor);
  if (best.first == kNone)
    for (auto const& [address, unmapped] : pool.unmapped) consider_range(unmapped);
  return best;
}

// The spot at this range; no spot if the range lacks more than `most` bytes.
Stitching::Spot Stitching::measured(Index first, Range place, Size most) const {
  Size bytes = 0;
  for (Index block = first; is_free(block); block = blocks_[block].next) {
    ++visited_;
    bytes += missing(block, place).size();
    if (bytes > most) break;
    if (blocks_[block].block.end() >= place.end) return {first, place, bytes};
  }
  return {kNone, {}, kNever};
}

// The pages to be mapped where the range overlaps a free or unmapped block.
Stitching::Range Stitching::missing(Index block, Range place) const {
  Block const& all = blocks_[block].block;
  if (blocks_.facts(block).mapped) return {all.address, all.address};
  Address const start = blocks_.facts(block).reservation->address;
  return {std::max(all.address, start + round_down(place.begin - start, page_)),
          std::min(all.end(), start + round_up(place.end - start, page_))};
}

// Reserves twice the capacity, which is always enough for the block and usually for later ones.
Stitching::Spot Stitching::new_reservation(BlockPool& pool, Size wanted) {
  Size const size = 2 * round_up(device().capacity(), page_);
  Address const address = reserve(size);
  if (address == 0) return {kNone, {}, kNever};
  return measured(blocks_.open({address, size, page_}, pool, 0), {address, address + wanted},
                  kNever);
}

// The block in which the spot begins. It differs from `spot.first` if that block has been merged
// with pages that were unmapped next to it.
Index Stitching::first_block(Spot const& spot, BlockPool const& pool) const {
  auto const above = pool.unmapped.upper_bound(spot.place.begin);
  if (above == pool.unmapped.begin()) return spot.first;
  Index const unmapped = std::prev(above)->second;
  return blocks_[unmapped].block.end() > spot.place.begin ? unmapped : spot.first;
}

// Maps the missing pages of a range that begins in `first` and returns the free block that contains
// it, or kNone if the device refuses a page. Pages mapped before the refusal stay mapped and free.
Index Stitching::map_missing(Index first, Range place) {
  for (Index block = first;; block = blocks_[block].next) {
    if (Range const pages = missing(block, place); pages.size() > 0) {
      if (!map(pages.begin, pages.size(), page_)) return kNone;
      block = blocks_.remap(block, pages);
    }
    if (blocks_[block].block.end() >= place.end) return block;
  }
}

}  // namespace allocbench

// strategies/caching/adopt.cpp: takes over the segments that a program held before its trace began.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "strategies/caching.hpp"

namespace allocbench {

bool Caching::adopt(std::vector<HeldSegment> const& layout) {
  std::scoped_lock const guard(lock());
  Size bytes = 0;
  for (HeldSegment const& held : layout) bytes += held.segment.size;
  if (reserved() > 0 || bytes > room() || !take_over(layout)) return false;
  for (HeldSegment const& held : layout)
    for (Block const& block : held.segment.blocks) count_allocation(block.size, block.requested);
  return true;
}

bool Caching::take_over(std::vector<HeldSegment> const& layout) {
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
  auto& [small, large] = blocks_.of(held.stream);
  Index const block =
      blocks_.create(address, size, {.pool = held.small ? &small : &large}, next_rank());
  blocks_.insert(block);
  blocks_.carve(block, blocks);
  return true;
}

// `ranges` are the mapped ranges of one reservation, in address order.
bool Caching::adopt_reservation(std::vector<HeldSegment> const& ranges) {
  HeldSegment const& first = ranges.front();
  Size const page = settings_.page(first.small);
  Segment const& last = ranges.back().segment;
  Size const size = std::max(reservation_size(page), last.address + last.size - first.reservation);
  std::vector<Segment> mapped;
  for (HeldSegment const& range : ranges) mapped.push_back(range.segment);
  if (!device().adopt_pages(first.reservation, size, page, mapped, this)) return false;
  for (Segment const& range : mapped) count_reserved(range.size);
  auto& [small, large] = blocks_.of(first.stream);
  Index unmapped =
      blocks_.open({first.reservation, size, page}, first.small ? small : large, next_rank());
  for (Segment const& range : mapped) {
    Index const block = blocks_.remap(unmapped, {range.address, range.address + range.size});
    unmapped = blocks_[block].next;
    blocks_.carve(block, range.blocks);
  }
  return true;
}

}  // namespace allocbench

// strategies/planned/mapped_range.cpp: snapshots and invariants of a range of mapped pages.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/planned/mapped_range.hpp"

#include <algorithm>

#include "core/errors.hpp"
#include "parts/tiled.hpp"

namespace allocbench {

// Free blocks end where the mapped range ends: unmapped pages are not part of a segment.
std::vector<Segment> MappedRange::snapshot() const {
  std::vector<Segment> segments;
  auto const known = blocks();
  Segment const all = tiled(address_, size_, known.begin(), known.end());
  auto block = all.blocks.begin();
  Pages::Run rest = pages.all();
  for (;;) {
    Pages::Run const run = pages.first_run(rest, true);
    if (run.count == 0) return segments;
    rest = {run.end(), rest.end() - run.end()};
    Segment& segment = segments.emplace_back(Segment{begin(run), bytes(run), {}});
    Address const end = segment.address + segment.size;
    while (block->end() <= segment.address) ++block;
    for (;; ++block) {
      Address const from = std::max(block->address, segment.address);
      Address const until = std::min(block->end(), end);
      segment.blocks.push_back({from, until - from, block->requested});
      if (block->end() >= end) break;
    }
  }
}

Size MappedRange::largest_free() const {
  Size largest = 0;
  for (Segment const& segment : snapshot())
    for (Block const& block : segment.blocks)
      if (!block.allocated()) largest = std::max(largest, block.size);
  return largest;
}

void MappedRange::check_pages() const {
  Pages expected;
  for (auto const& [address, block] : blocks()) {
    Pages::Run run = touched(block);
    require(pages.first_run(run, false).count == 0, "a page with a block is mapped");
    if (expected.touched({run.first, 1})) run = {run.first + 1, run.count - 1};
    expected.touch(run);
  }
  for (std::size_t page = 0; page < std::max(pages.all().count, expected.all().count); ++page)
    require(expected.touched({page, 1}) == pages.touched({page, 1}),
            "a page is marked as touched if and only if a block touches it");
}

}  // namespace allocbench

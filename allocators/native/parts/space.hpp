// parts/space.hpp: a reservation whose pages are mapped and unmapped one by one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "core/errors.hpp"
#include "core/types.hpp"
#include "parts/pages.hpp"

namespace allocbench {

// Addresses and their pages. Nothing here calls the device. A space tiled is a segment of all its
// addresses, whose free blocks may lie on pages that are not mapped.
struct Space {
  Address address = 0;
  Size size = 0;  // 0: it is not reserved yet
  Size page = 1;  // bytes
  Pages pages = {};

  bool contains(Address at) const { return at - address < size; }

  Pages::Run touched(Block const& block) const {
    std::size_t const first = (block.address - address) / page;
    return {first, (block.end() - address + page - 1) / page - first};
  }
  Address begin(Pages::Run run) const { return address + run.first * page; }
  Size bytes(Pages::Run run) const { return run.count * page; }
  Size mapped() const { return pages.mapped() * page; }  // bytes

  // Adds the mapped parts of the space tiled, each a segment.
  void add_mapped(Segment const& tiled, std::vector<Segment>& to) const {
    auto block = tiled.blocks.begin();
    Pages::Run rest = pages.all();
    for (;;) {
      Pages::Run const run = pages.first_run(rest, true);
      if (run.count == 0) return;
      rest = {run.end(), rest.end() - run.end()};
      Segment& segment = to.emplace_back(Segment{begin(run), bytes(run), {}});
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

  // Throws InvariantViolation.
  void check(Segment const& tiled) const {
    Pages found;
    for (Block const& block : tiled.blocks)
      if (block.allocated()) found.enter(touched(block));
    std::size_t const count = std::max(pages.all().count, found.all().count);
    for (std::size_t at = 0; at < count; ++at) {
      require(found.blocks(at) == pages.blocks(at), "a page knows how many blocks touch it");
      require(found.blocks(at) == 0 || pages.is_mapped(at), "a page with a block is mapped");
    }
  }
};

}  // namespace allocbench

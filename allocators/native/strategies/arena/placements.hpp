// strategies/arena/placements.hpp: the live blocks of a planned arena.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iterator>
#include <map>
#include <memory_resource>

#include "core/types.hpp"
#include "parts/tiled.hpp"

namespace allocbench {

// The live blocks of an arena, which may or may not follow the plan. Every call takes O(log n)
// steps.
class Placements {
 public:
  // Returns false, and changes nothing, if the block overlaps another one.
  bool add(Block const& block) {
    auto const above = alive_.lower_bound(block.address);
    if (above != alive_.end() && above->first < block.end()) return false;
    if (above != alive_.begin() && std::prev(above)->second.end() > block.address) return false;
    alive_.emplace_hint(above, block.address, block);
    return true;
  }

  // Removes and returns the block at `address`, or a block of size 0.
  Block remove(Address address) {
    auto const entry = alive_.find(address);
    if (entry == alive_.end()) return {};
    Block const block = entry->second;
    alive_.erase(entry);
    return block;
  }

  bool empty() const { return alive_.empty(); }
  // The segment that contains all the blocks.
  Segment tiled_in(Address start, Size size) const {
    return tiled(start, size, alive_.begin(), alive_.end());
  }

 private:
  std::pmr::unsynchronized_pool_resource nodes_;
  std::pmr::map<Address, Block> alive_{&nodes_};
};

}  // namespace allocbench

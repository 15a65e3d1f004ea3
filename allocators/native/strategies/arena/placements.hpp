// strategies/arena/placements.hpp: allocated blocks that lie where a plan puts them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iterator>
#include <map>
#include <memory_resource>

#include "core/types.hpp"
#include "parts/tiled.hpp"

namespace allocbench {

// The blocks alive of a plan, which may or may not keep to it. Every call takes O(log n) steps.
class Placements {
 public:
  // False, and nothing changes, when a block lies in any of its bytes.
  bool add(Block const& block) {
    auto const above = alive_.lower_bound(block.address);
    if (above != alive_.end() && above->first < block.end()) return false;
    if (above != alive_.begin() && std::prev(above)->second.end() > block.address) return false;
    alive_.emplace_hint(above, block.address, block);
    return true;
  }

  // The block at `address`, which is forgotten, or a block of size 0.
  Block take(Address address) {
    auto const found = alive_.find(address);
    if (found == alive_.end()) return {};
    Block const block = found->second;
    alive_.erase(found);
    return block;
  }

  bool empty() const { return alive_.empty(); }
  // A segment in which all of them lie.
  Segment tiled_in(Address start, Size size) const {
    return tiled(start, size, alive_.begin(), alive_.end());
  }

 private:
  std::pmr::unsynchronized_pool_resource nodes_;
  std::pmr::map<Address, Block> alive_{&nodes_};
};

}  // namespace allocbench

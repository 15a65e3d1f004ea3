// parts/placements.hpp: allocated blocks that lie where a plan puts them.
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
  // Whether no block lies in any of these bytes.
  bool is_free(Address address, Size size) const {
    auto const above = alive_.lower_bound(address);
    if (above != alive_.end() && above->first < address + size) return false;
    return above == alive_.begin() || std::prev(above)->second.end() <= address;
  }

  // The bytes of the block are free.
  void add(Block const& block) { alive_.emplace(block.address, block); }

  // The block at `address`, which is forgotten, or a block of size 0.
  Block take(Address address) {
    auto const found = alive_.find(address);
    if (found == alive_.end()) return {};
    Block const block = found->second;
    alive_.erase(found);
    return block;
  }

  bool empty() const { return alive_.empty(); }
  std::size_t size() const { return alive_.size(); }
  // A segment in which all of them lie.
  Segment tiled_in(Address start, Size size) const {
    return tiled(start, size, alive_.begin(), alive_.end());
  }

 private:
  std::pmr::unsynchronized_pool_resource nodes_;
  std::pmr::map<Address, Block> alive_{&nodes_};
};

}  // namespace allocbench

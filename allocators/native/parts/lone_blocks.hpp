// parts/lone_blocks.hpp: live blocks by address.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/types.hpp"
#include "parts/address_map.hpp"
#include "parts/node.hpp"

namespace allocbench {

// Live blocks, which have no neighbors. Both calls take O(1) expected steps.
class LoneBlocks {
 public:
  Block insert(Block const& block) {
    live_.insert(block.address, blocks_.put(block));
    return block;
  }

  // Returns the erased block; size 0 if there was none.
  Block erase(Address address) {
    Index const block = live_.erase(address);
    if (block == kNone) return {};
    blocks_.drop(block);
    return blocks_[block];
  }

  // Each block as a segment of its own.
  std::vector<Segment> segments() const {
    std::vector<Segment> all;
    live_.for_each([&](Address address, Index block) {
      all.push_back({address, blocks_[block].size, {blocks_[block]}});
    });
    return all;
  }

 private:
  Slots<Block> blocks_;
  AddressMap live_;
};

}  // namespace allocbench

// parts/lone_blocks.hpp: blocks that are segments by themselves.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/types.hpp"
#include "parts/address_map.hpp"
#include "parts/node.hpp"

namespace allocbench {

// Live blocks by address, each exactly as large as its request. Both calls take O(1) expected
// steps.
class LoneBlocks {
 public:
  Block insert(Address address, Size requested) {
    Block const block{address, requested, requested};
    live_.insert(address, blocks_.put(block));
    return block;
  }

  // Returns the erased block; size 0 if there was none.
  Block erase(Address address) {
    Index const block = live_.erase(address);
    if (block == kNone) return {};
    blocks_.drop(block);
    return blocks_[block];
  }

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

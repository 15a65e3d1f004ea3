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
    Index const node = nodes_.create(address, requested);
    nodes_[node].block.requested = requested;
    live_.insert(address, node);
    return nodes_[node].block;
  }

  // Returns the erased block; size 0 if there was none.
  Block erase(Address address) {
    Index const node = live_.erase(address);
    if (node == kNone) return {};
    nodes_.drop(node);
    return nodes_[node].block;
  }

  std::vector<Segment> segments() const {
    std::vector<Segment> all;
    live_.for_each([&](Address address, Index node) {
      Block const& block = nodes_[node].block;
      all.push_back({address, block.size, {block}});
    });
    return all;
  }

 private:
  Nodes nodes_;
  AddressMap live_;
};

}  // namespace allocbench

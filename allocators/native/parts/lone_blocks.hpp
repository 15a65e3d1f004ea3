// parts/lone_blocks.hpp: blocks that share their segment with no other.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/types.hpp"
#include "parts/address_map.hpp"
#include "parts/node.hpp"

namespace allocbench {

// Live blocks by address, each exactly as large as its request. O(1) expected steps for both calls.
class LoneBlocks {
 public:
  Block insert(Address address, Size requested) {
    Index const node = nodes_.create(address, requested);
    nodes_[node].block.requested = requested;
    live_.insert(address, node);
    return nodes_[node].block;
  }

  // The block that was there; size 0 when there was none.
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

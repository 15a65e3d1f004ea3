// parts/node.hpp: blocks as nodes of an array, identified by index.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/types.hpp"
#include "parts/slots.hpp"

namespace allocbench {

// A block, its neighbors in address order (within its segment) and, while it is free, those in the
// list of its bin. `rank` is compared before the address in the order of FreeIndex. Each node has a
// cache line of its own, because a free visits nodes that are far apart when there are many.
struct alignas(64) Node {
  Block block;
  std::uint64_t rank = 0;
  Index previous = kNone;
  Index next = kNone;
  Index left = kNone;
  Index right = kNone;
};

class Nodes : public Slots<Node> {
 public:
  Index create(Address address, Size size) {
    return put({.block = {.address = address, .size = size, .requested = 0}});
  }
};

}  // namespace allocbench

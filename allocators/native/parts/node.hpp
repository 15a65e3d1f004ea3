// parts/node.hpp: blocks as nodes in one array, named by their index in it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "core/types.hpp"
#include "parts/slots.hpp"

namespace allocbench {

// A block with its neighbours in address order (within its segment) and, while it is free, its
// children in the tree of its bin (FreeIndex), where its rank goes before its address.
struct Node {
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

// parts/node.hpp: blocks as nodes in one array, named by their index in it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "core/types.hpp"

namespace allocbench {

using Index = std::uint32_t;
constexpr Index kNone = std::numeric_limits<Index>::max();

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

// Nodes live in a vector, dropped ones are reused last in, first out.
class Nodes {
 public:
  Node& operator[](Index node) { return nodes_[node]; }
  Node const& operator[](Index node) const { return nodes_[node]; }

  Index create(Address address, Size size) {
    Index node = unused_;
    if (node == kNone) {
      node = static_cast<Index>(nodes_.size());
      nodes_.emplace_back();
    } else {
      unused_ = nodes_[node].next;
    }
    nodes_[node] = Node{.block = {.address = address, .size = size, .requested = 0}};
    return node;
  }

  void drop(Index node) {
    nodes_[node].next = unused_;
    unused_ = node;
  }

 private:
  std::vector<Node> nodes_;
  Index unused_ = kNone;
};

}  // namespace allocbench

// parts/tiled.hpp: a segment from its allocated blocks alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/types.hpp"

namespace allocbench {

// The segment tiled by the blocks in [block, end), pairs whose second is a Block, in order of
// address; what lies between them becomes free blocks.
template <class Iterator>
Segment tiled(Address start, Size size, Iterator block, Iterator end) {
  Segment segment{start, size, {}};
  Address at = start;
  for (; block != end; ++block) {
    Block const& allocated = block->second;
    if (allocated.address > at) segment.blocks.push_back({at, allocated.address - at, 0});
    segment.blocks.push_back(allocated);
    at = allocated.end();
  }
  if (at < start + size) segment.blocks.push_back({at, start + size - at, 0});
  return segment;
}

}  // namespace allocbench

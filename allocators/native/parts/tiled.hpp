// parts/tiled.hpp: makes a segment from the list of its allocated blocks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/types.hpp"

namespace allocbench {

// The segment tiled by the blocks in [block, end), pairs whose second is a Block, in address order.
// Gaps become free blocks.
template <class Iterator>
Segment tiled(Address start, Size size, Iterator block, Iterator end) {
  Segment segment{start, size, {}};
  Address position = start;
  for (; block != end; ++block) {
    Block const& allocated = block->second;
    if (allocated.address > position)
      segment.blocks.push_back({position, allocated.address - position, 0});
    segment.blocks.push_back(allocated);
    position = allocated.end();
  }
  if (position < start + size) segment.blocks.push_back({position, start + size - position, 0});
  return segment;
}

}  // namespace allocbench

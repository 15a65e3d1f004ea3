// planners/simple_memory_arena.hpp: offsets in a buffer whose size is known only at the end.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/device.hpp"
#include "core/types.hpp"
#include "planners/gaps.hpp"

namespace allocbench {

// TFLite's SimpleMemoryArena. Blocks first get offsets (Gaps); `commit` then obtains one segment as
// large as the high-water mark, and `resolve` turns an offset into an address. A block of size 0 is
// allowed and resolves to null.
class SimpleMemoryArena {
 public:
  struct Alloc {
    Size offset = 0;
    Size size = 0;
  };

  // `alignment` of the segment. Throws SpecError unless it is a power of two of at most 2 MiB, the
  // alignment of a device's segments.
  SimpleMemoryArena(Device& device, Size alignment);
  ~SimpleMemoryArena();
  SimpleMemoryArena(SimpleMemoryArena const&) = delete;
  SimpleMemoryArena& operator=(SimpleMemoryArena const&) = delete;

  // O(log n) time for n placed blocks. Throws SpecError for an alignment that is not a power of
  // two.
  Alloc allocate(Size alignment, Size size);
  // Throws BadFree unless the block is placed.
  void deallocate(Alloc block);
  // Throws OutOfMemory if the device refuses, and then keeps the old segment. Growing moves the
  // arena, so addresses resolved before are invalid.
  void commit();
  // Throws SpecError before commit, or for a block beyond the committed size.
  Address resolve(Alloc block) const;
  // Removes all blocks but keeps the segment for reuse.
  void clear();

  Size high_water_mark() const { return gaps_.high_water_mark(); }
  Size committed_size() const { return committed_size_; }

 private:
  Device& device_;
  Size alignment_;
  Gaps gaps_;
  bool committed_ = false;
  Address segment_ = 0;
  Size committed_size_ = 0;
};

}  // namespace allocbench

// planners/simple_memory_arena.hpp: offsets in one buffer whose size is known only at the end.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/device.hpp"
#include "core/types.hpp"
#include "planners/gaps.hpp"

namespace allocbench {

// TFLite's SimpleMemoryArena. Blocks are given offsets first (Gaps); `commit` then gets one
// segment of the high-water mark, and `resolve` turns an offset into an address. A block of size
// 0 is allowed and resolves to null.
class SimpleMemoryArena {
 public:
  struct Alloc {
    Size offset = 0;
    Size size = 0;
  };

  // `alignment` is that of the segment; throws SpecError unless it is a power of two of at most
  // 2 MiB, as devices align segments.
  SimpleMemoryArena(Device& device, Size alignment);
  ~SimpleMemoryArena();
  SimpleMemoryArena(SimpleMemoryArena const&) = delete;
  SimpleMemoryArena& operator=(SimpleMemoryArena const&) = delete;

  // O(n) steps in the blocks placed. Throws SpecError for an alignment that is no power of two.
  Alloc allocate(Size alignment, Size size);
  // Throws BadFree unless the block is placed.
  void deallocate(Alloc block);
  // Throws OutOfMemory when the device refuses; the old segment is kept then. Growing moves the
  // arena: addresses resolved before are void.
  void commit();
  // Throws SpecError before commit, or for a block beyond the committed size.
  Address resolve(Alloc block) const;
  // Forgets all blocks; the segment stays for the next round.
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

// planners/simple_memory_arena.cpp: offsets in a buffer whose size is known only at the end.
// SPDX-License-Identifier: Apache-2.0
#include "planners/simple_memory_arena.hpp"

#include <string>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace allocbench {
SimpleMemoryArena::SimpleMemoryArena(Device& device, Size alignment)
    : device_(device), alignment_(alignment) {
  check_alignment(alignment);
}

SimpleMemoryArena::~SimpleMemoryArena() {
  if (segment_ != 0) device_.free(segment_);
}

SimpleMemoryArena::Alloc SimpleMemoryArena::allocate(Size alignment, Size size) {
  check_alignment(alignment);
  committed_ = false;
  if (size == 0) return {};
  return {gaps_.place(size, alignment), size};
}

void SimpleMemoryArena::deallocate(Alloc block) {
  if (block.size != 0) gaps_.remove(block.offset, block.size);
}

void SimpleMemoryArena::commit() {
  Size const needed = round_up(gaps_.high_water_mark(), alignment_);
  if (needed > committed_size_) {
    Address const larger = device_.allocate(needed, this);
    if (larger == 0)
      throw OutOfMemory("arena: the device refused a segment of " + human_bytes(needed) +
                        "; it has room for " + human_bytes(device_.room()));
    if (segment_ != 0) device_.free(segment_);
    segment_ = larger;
    committed_size_ = needed;
  }
  committed_ = true;
}

Address SimpleMemoryArena::resolve(Alloc block) const {
  if (!committed_) throw SpecError("arena: commit before resolving a block");
  if (block.size == 0) return 0;
  if (block.offset + block.size > committed_size_)
    throw SpecError("arena: the block ends at " + std::to_string(block.offset + block.size) +
                    ", beyond the committed " + std::to_string(committed_size_) + " bytes");
  return segment_ + block.offset;
}

void SimpleMemoryArena::clear() {
  committed_ = false;
  gaps_ = {};
}

}  // namespace allocbench

// core/types.hpp: the vocabulary of allocbench.
// SPDX-License-Identifier: Apache-2.0
//
// allocator    a strategy at work: turns requests into addresses
// device       where an allocator gets its segments
// segment      one contiguous range obtained from the device
// block        part of a segment, either free or allocated as a whole
// bin          the free blocks of one size class
// reservation  a segment of addresses, with memory only where pages are mapped
// page         the unit in which memory is mapped into a reservation, or taken from a card
// pool         a private pool (PoolId): memory that serves only a captured graph or a
//              torch.cuda.MemPool. Other pools have a name of their own: a block pool holds the
//              free blocks of one stream, small or large ones, as in PyTorch (BlockPool); a driver
//              pool is a cuMemPool (DriverPool models one); a graph pool is PyTorch's id
//              (GraphPool)
// program      a script or command that allocates; Program has the allocators of a running one
// trace        the recorded allocs, frees, marks and trims of a program
// event        one entry of a trace; those of a CUDA stream are CUDA events (cuda::Event)
// recording    what was recorded of a program or an allocator: a trace, and possibly the placements
//              and device calls of the allocator
// step         a training or inference step, begun by a mark; the work of an operation is counted
//              in search steps
// placement    the address, or the segment and offset, of one block of a trace
// plan         the offsets of all blocks of a trace, computed ahead of time from their lifetimes
// detail       what a replay records for the charts, in addition to the measurement; the tables of
//              `reports.details` hold it
//
// Bytes are *requested* (by the caller), *allocated* (after rounding) or *reserved* (obtained from
// the device). An address is only a number and is never dereferenced, so a strategy keeps its
// metadata outside the memory that it manages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace allocbench {

using Address = std::uint64_t;  // 0 is the null address, which is in no segment
using Size = std::uint64_t;     // bytes
using PoolId = std::uint32_t;   // of a private pool; 0 is the memory outside of them
// The number of a stream in the lower half, 0 being the default stream, and in the upper half the
// private pool that serves its request.
using Stream = std::uint64_t;

constexpr Stream in_pool(Stream stream, PoolId pool) { return stream | Stream{pool} << 32; }
constexpr PoolId pool_of(Stream stream) { return static_cast<PoolId>(stream >> 32); }
constexpr Stream without_pool(Stream stream) { return stream & 0xffffffff; }

// `requested` is 0 in a free block. A block of size 0 means "out of memory" or "no such block".
struct Block {
  Address address = 0;
  Size size = 0;
  Size requested = 0;

  bool allocated() const { return requested != 0; }
  Address end() const { return address + size; }
};

// A range obtained from the device, tiled by `blocks` in address order.
struct Segment {
  Address address = 0;
  Size size = 0;
  std::vector<Block> blocks;
};

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

// Size of the largest free block in these segments; 0 if there is none.
inline Size largest_free_in(std::vector<Segment> const& segments) {
  Size largest = 0;
  for (Segment const& segment : segments)
    for (Block const& block : segment.blocks)
      if (!block.allocated()) largest = std::max(largest, block.size);
  return largest;
}

// A segment, or a region of BFC, that a program held before its trace began. `blocks` are those
// allocated in it, in order of address; the rest of it is free.
struct HeldSegment {
  Segment segment;
  Stream stream = 0;
  bool small = false;       // its pool
  Address reservation = 0;  // the reservation that this is a mapped range of; 0: none
  std::uint64_t rank = 0;   // the segment with the lowest rank was obtained first
  bool of_bfc = false;      // of TensorFlow's allocator, not of PyTorch's
};

constexpr Size kKiB = Size{1} << 10;
constexpr Size kMiB = Size{1} << 20;
constexpr Size kGiB = Size{1} << 30;

// `to` does not have to be a power of two.
constexpr Size round_up(Size value, Size to) { return (value + to - 1) / to * to; }
constexpr Size round_down(Size value, Size to) { return value / to * to; }
// The largest size if the sum is larger.
constexpr Size sum(Size a, Size b) { return b > ~a ? ~Size{0} : a + b; }

}  // namespace allocbench

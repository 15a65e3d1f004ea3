// core/types.hpp: the nouns of allocbench.
// SPDX-License-Identifier: Apache-2.0
//
// allocator  turns requests into addresses; one strategy, one class
// device     where an allocator gets segments
// segment    one contiguous range obtained from the device
// block      part of a segment, wholly free or wholly allocated
// bin        the free blocks of one size class
//
// Bytes are *requested* (asked for), *allocated* (set aside after rounding) or *reserved*
// (held from the device). An address is a number: nothing here ever dereferences one, so the
// metadata of every strategy lives outside the memory that it manages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace allocbench {

using Address = std::uint64_t;  // 0 is the null address: never inside a segment
using Size = std::uint64_t;     // bytes
using Stream = std::uint32_t;   // 0 is the default stream

// `requested` is 0 in a free block. A block of size 0 means "there was no memory".
struct Block {
  Address address = 0;
  Size size = 0;
  Size requested = 0;

  bool allocated() const { return requested != 0; }
  Address end() const { return address + size; }
};

// What happens in a trace, as its `op` array has it; a mark is a step or phase boundary.
enum class Op : std::uint8_t { kAlloc = 0, kFree = 1, kMark = 2, kTrim = 3 };

// What a strategy holds from the device, tiled by `blocks` in order of address.
struct Segment {
  Address address = 0;
  Size size = 0;
  std::vector<Block> blocks;
};

constexpr Size kKiB = Size{1} << 10;
constexpr Size kMiB = Size{1} << 20;
constexpr Size kGiB = Size{1} << 30;

// `to` need not be a power of two.
constexpr Size round_up(Size value, Size to) { return (value + to - 1) / to * to; }
constexpr Size round_down(Size value, Size to) { return value / to * to; }

}  // namespace allocbench

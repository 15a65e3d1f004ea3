// planners/gaps.cpp: offsets for blocks that are placed and removed over time, by best fit.
// SPDX-License-Identifier: Apache-2.0
#include "planners/gaps.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace allocbench {
namespace {

// Larger than any device, and small enough that sums stay below 2^64.
constexpr Size kHighest = Size{1} << 62;

[[noreturn]] void refuse(Size size) {
  throw OutOfMemory("plan: a block of " + human_bytes(size) + " ends beyond 2^62 bytes");
}

}  // namespace

void check_alignment(Size alignment) {
  if (!std::has_single_bit(alignment) || alignment > 2 * kMiB)
    throw SpecError("plan: alignment " + std::to_string(alignment) +
                    " must be a power of two of at most 2 MiB");
}

Size Gaps::place(Size size, Size alignment) {
  if (size > kHighest) refuse(size);
  for (auto gap = gaps_.lower_bound({size, 0}); gap != gaps_.end(); ++gap) {
    auto const [bytes, begin] = *gap;
    Size const start = round_up(begin, alignment);
    if (start + size <= begin + bytes) return insert(placed_.lower_bound(begin), start, size);
  }
  return insert(placed_.end(), round_up(end_below(placed_, placed_.end()), alignment), size);
}

Size Gaps::place_on_top(Size size, Size alignment) {
  if (size > kHighest) refuse(size);
  return insert(placed_.end(), round_up(high_water_mark_, alignment), size);
}

// `above`: the block above the new one.
Size Gaps::insert(Blocks::const_iterator above, Size offset, Size size) {
  if (offset + size > kHighest) refuse(size);
  Size const begin = end_below(placed_, above);
  if (above != placed_.end()) {
    remove_gap(begin, above->first);
    add_gap(offset + size, above->first);
  }
  add_gap(begin, offset);
  placed_.emplace_hint(above, offset, offset + size);
  high_water_mark_ = std::max(high_water_mark_, offset + size);
  return offset;
}

void Gaps::remove(Size offset, Size size) {
  auto const block = placed_.find(offset);
  if (block == placed_.end() || block->second != offset + size)
    throw BadFree("arena: there is no block of " + human_bytes(size) + " at offset " +
                  std::to_string(offset));
  Size const begin = end_below(placed_, block);
  remove_gap(begin, offset);
  auto const above = placed_.erase(block);
  if (above == placed_.end()) return;
  remove_gap(offset + size, above->first);
  add_gap(begin, above->first);
}

void Gaps::add_gap(Size begin, Size end) {
  if (begin < end) gaps_.emplace(end - begin, begin);
}

void Gaps::remove_gap(Size begin, Size end) {
  if (begin < end) gaps_.erase({end - begin, begin});
}

}  // namespace allocbench

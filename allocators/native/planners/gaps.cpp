// planners/gaps.cpp: offsets for blocks that are placed and removed over time, by best fit.
// SPDX-License-Identifier: Apache-2.0
#include "planners/gaps.hpp"

#include <algorithm>
#include <bit>
#include <optional>
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
  std::optional<Size> best;
  Size smallest = 0;
  Size end = 0;  // highest end of the blocks visited so far
  for (auto const& [offset, placed] : placed_) {
    Size const start = round_up(end, alignment);
    Size const gap = offset - end;
    if (start + size <= offset && (!best || gap < smallest)) {
      best = start;
      smallest = gap;
    }
    end = offset + placed;
  }
  return insert(best.value_or(round_up(end, alignment)), size);
}

Size Gaps::place_on_top(Size size, Size alignment) {
  if (size > kHighest) refuse(size);
  return insert(round_up(high_water_mark_, alignment), size);
}

Size Gaps::insert(Size offset, Size size) {
  if (offset + size > kHighest) refuse(size);
  placed_.emplace(offset, size);
  high_water_mark_ = std::max(high_water_mark_, offset + size);
  return offset;
}

void Gaps::remove(Size offset, Size size) {
  auto const entry = placed_.find(offset);
  if (entry == placed_.end() || entry->second != size)
    throw BadFree("arena: there is no block of " + human_bytes(size) + " at offset " +
                  std::to_string(offset));
  placed_.erase(entry);
}

}  // namespace allocbench

// planners/scaled_boxes.cpp: boxes with sizes in units, for searches for a plan of a given height.
// SPDX-License-Identifier: Apache-2.0
#include "planners/scaled_boxes.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

namespace allocbench {
namespace {

constexpr Size kMostUnits = Size{1} << 30;  // sums of two stay below 2^32

}  // namespace

std::optional<ScaledBoxes> scaled(Sections const& sections, Size height, Size alignment) {
  ScaledBoxes result{{}, {}, 0, 0, true};
  for (auto const& box : sections.boxes) result.unit = std::gcd(result.unit, box.rounded);
  if (result.unit == 0) result.unit = alignment;
  if (height / result.unit >= kMostUnits) {
    result.unit = std::max(alignment, std::bit_ceil(height / kMostUnits + 1));
    result.exact = false;
  }

  std::vector<Size> loads(sections.load.size());
  for (auto const& box : sections.boxes) {
    if (box.size > height) return {};
    auto const size = static_cast<Units>((box.size + result.unit - 1) / result.unit);
    auto const limit = static_cast<Units>((height - box.size) / result.unit);
    result.boxes.push_back({box.lo, box.hi, size, limit, box.kind, box.block});
    result.height = std::max(result.height, limit + size);
    for (std::uint32_t section = box.lo; section < box.hi; ++section) loads[section] += size;
  }
  for (Size const load : loads) {
    if (load > result.height) return {};
    result.loads.push_back(static_cast<Units>(load));
  }
  return result;
}

}  // namespace allocbench

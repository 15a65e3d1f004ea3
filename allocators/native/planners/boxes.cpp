// planners/boxes.cpp: blocks as boxes over sections of time.
// SPDX-License-Identifier: Apache-2.0
#include "planners/boxes.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

namespace allocbench {
namespace {

constexpr Size kMostUnits = Size{1} << 30;  // sums of two stay below 2^32

}  // namespace

Sections sections_of(std::span<Lifetime const> lifetimes, Size alignment) {
  std::vector<std::uint32_t> begins(lifetimes.size());
  std::iota(begins.begin(), begins.end(), 0u);
  auto ends = begins;
  std::ranges::stable_sort(begins, {}, [&](auto block) { return lifetimes[block].first; });
  std::ranges::stable_sort(ends, {}, [&](auto block) { return lifetimes[block].last; });

  // A section is complete when a block ends after at least one has begun in it.
  std::vector<std::uint32_t> lo(lifetimes.size()), hi(lifetimes.size());
  std::uint32_t sections = 0;
  bool begun = false;
  auto ending = ends.begin();
  auto const end_until = [&](std::uint32_t now) {
    for (; ending != ends.end() && lifetimes[*ending].last <= now; ++ending) {
      sections += std::exchange(begun, false);
      hi[*ending] = sections;
    }
  };
  for (std::uint32_t const block : begins) {
    end_until(lifetimes[block].first);
    lo[block] = sections;
    begun = true;
  }
  end_until(kForever);

  Sections result;
  result.load.assign(sections, 0);
  for (std::uint32_t const block : begins) {
    auto const [size, first, last] = lifetimes[block];
    Size const rounded = round_up(size, alignment);
    result.boxes.push_back({lo[block], hi[block], size, rounded, last - first, block,
                            mix(mix(mix(size) + lo[block]) + hi[block])});
    for (std::uint32_t section = lo[block]; section < hi[block]; ++section)
      result.load[section] += rounded;
  }
  return result;
}

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

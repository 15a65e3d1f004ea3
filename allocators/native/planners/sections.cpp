// planners/sections.cpp: blocks as boxes over sections of time.
// SPDX-License-Identifier: Apache-2.0
#include "planners/sections.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace allocbench {

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

}  // namespace allocbench

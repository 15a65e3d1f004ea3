// planners/load.cpp: lower bounds on the height of any plan.
// SPDX-License-Identifier: Apache-2.0
#include "planners/load.hpp"

#include <algorithm>
#include <numeric>
#include <set>

namespace allocbench {
namespace {

// Calls `begin` and `end` for each lifetime in time order, ends before begins.
template <class Begin, class End>
void sweep(std::span<Lifetime const> lifetimes, Begin begin, End end) {
  std::vector<std::uint32_t> begins(lifetimes.size());
  std::iota(begins.begin(), begins.end(), 0u);
  auto ends = begins;
  std::ranges::sort(begins, {}, [&](auto block) { return lifetimes[block].first; });
  std::ranges::sort(ends, {}, [&](auto block) { return lifetimes[block].last; });
  auto ending = ends.begin();
  for (std::uint32_t const block : begins) {
    for (; lifetimes[*ending].last <= lifetimes[block].first; ++ending) end(lifetimes[*ending]);
    begin(lifetimes[block]);
  }
}

}  // namespace

Size max_load(std::span<Lifetime const> lifetimes) { return least_height(lifetimes, 1); }

Size least_height(std::span<Lifetime const> lifetimes, Size alignment) {
  Size load = 0, least = 0;
  std::multiset<Size> rounding;  // bytes that rounding adds to each live block
  auto const rounded = [&](Lifetime const& block) { return round_up(block.size, alignment); };
  sweep(
      lifetimes,
      [&](Lifetime const& block) {
        load += rounded(block);
        if (alignment > 1) rounding.insert(rounded(block) - block.size);
        least = std::max(least, load - (alignment > 1 ? *rounding.rbegin() : 0));
      },
      [&](Lifetime const& block) {
        load -= rounded(block);
        if (alignment > 1) rounding.erase(rounding.find(rounded(block) - block.size));
      });
  return least;
}

}  // namespace allocbench

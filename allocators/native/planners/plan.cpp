// planners/plan.cpp: lower bounds on the height of any plan.
// SPDX-License-Identifier: Apache-2.0
#include "planners/plan.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <set>
#include <utility>

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
  bool const any = std::ranges::any_of(
      lifetimes, [&](Lifetime const& block) { return rounded(block) != block.size; });
  sweep(
      lifetimes,
      [&](Lifetime const& block) {
        load += rounded(block);
        if (any) rounding.insert(rounded(block) - block.size);
        least = std::max(least, load - (any ? *rounding.rbegin() : 0));
      },
      [&](Lifetime const& block) {
        load -= rounded(block);
        if (any) rounding.erase(rounding.find(rounded(block) - block.size));
      });
  return least;
}

std::vector<Size> peak_loads(std::span<Lifetime const> lifetimes) {
  std::vector<std::uint32_t> begins;  // of blocks, in ascending order; the load rises only there
  std::vector<std::vector<Size>> highest(1);  // [k][i]: from the i-th begin, of 2^k begins
  Size load = 0;
  sweep(
      lifetimes,
      [&](Lifetime const& block) {
        begins.push_back(block.first);
        highest[0].push_back(load += block.size);
      },
      [&](Lifetime const& block) { load -= block.size; });
  for (std::size_t width = 1; 2 * width <= begins.size(); width *= 2) {
    auto const& half = highest.back();
    std::vector<Size> whole;
    whole.reserve(half.size());
    for (std::size_t i = 0; i + width < half.size(); ++i)
      whole.push_back(std::max(half[i], half[i + width]));
    highest.push_back(std::move(whole));
  }
  std::vector<Size> peaks;
  for (auto const& [size, first, last] : lifetimes) {
    // The load at an instant is that after its last begin.
    auto const lo = std::ranges::upper_bound(begins, first) - begins.begin() - 1;
    auto const hi = std::ranges::lower_bound(begins, last) - begins.begin();
    auto const level = std::bit_width(static_cast<std::uint64_t>(hi - lo)) - 1;
    peaks.push_back(
        std::max(highest[level][lo], highest[level][hi - (std::ptrdiff_t{1} << level)]));
  }
  return peaks;
}

}  // namespace allocbench

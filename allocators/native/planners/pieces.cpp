// planners/pieces.cpp: cuts lifetimes into pieces that can be planned one by one.
// SPDX-License-Identifier: Apache-2.0
#include "planners/pieces.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace allocbench {
namespace {

constexpr int kDeepest = 64;  // levels of cuts, to limit the time for deeply nested lifetimes

class Cutter {
 public:
  Cutter(std::span<Lifetime const> lifetimes, Size alignment, std::size_t exact_blocks)
      : lifetimes_(lifetimes), alignment_(alignment), exact_blocks_(exact_blocks) {
    result_.offsets.resize(lifetimes.size());
  }

  Pieces run() {
    std::vector<std::uint32_t> order(lifetimes_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::stable_sort(order, {}, [&](auto block) { return lifetimes_[block].first; });
    cut_time(order, 0, 0);
    return std::move(result_);
  }

 private:
  // `blocks`: in the order of their begin.
  void cut_time(std::vector<std::uint32_t> const& blocks, Size base, int depth) {
    std::vector<std::uint32_t> stretch;
    std::uint32_t end = 0;
    for (std::uint32_t const block : blocks) {
      if (!stretch.empty() && lifetimes_[block].first >= end)
        settle(std::exchange(stretch, {}), base, depth);
      end = std::max(end, lifetimes_[block].last);
      stretch.push_back(block);
    }
    if (!stretch.empty()) settle(std::move(stretch), base, depth);
  }

  void settle(std::vector<std::uint32_t> blocks, Size base, int depth) {
    std::uint32_t first_end = kForever, last_begin = 0;
    for (std::uint32_t const block : blocks) {
      first_end = std::min(first_end, lifetimes_[block].last);
      last_begin = std::max(last_begin, lifetimes_[block].first);
    }
    bool const exact = blocks.size() <= exact_blocks_;
    auto const settled = std::ranges::stable_partition(blocks, [&](auto block) {
      auto const& [size, first, last] = lifetimes_[block];
      bool const spans = first < first_end && last > last_begin;
      return !spans || (exact && rounding(block) != 0);
    });
    if (settled.empty() || depth == kDeepest) {
      result_.pieces.push_back({std::move(blocks), base});
      return;
    }
    std::ranges::stable_sort(settled, {}, [&](auto block) { return rounding(block); });
    for (std::uint32_t const block : settled) {
      result_.lossless = result_.lossless && rounding(block) == 0;
      result_.offsets[block] = base;
      result_.height = std::max(result_.height, base + lifetimes_[block].size);
      base += round_up(lifetimes_[block].size, alignment_);
    }
    blocks.erase(settled.begin(), settled.end());
    cut_time(blocks, base, depth + 1);
  }

  Size rounding(std::uint32_t block) const {
    Size const size = lifetimes_[block].size;
    return round_up(size, alignment_) - size;
  }

  std::span<Lifetime const> lifetimes_;
  Size alignment_;
  std::size_t exact_blocks_;
  Pieces result_;
};

}  // namespace

Pieces cut(std::span<Lifetime const> lifetimes, Size alignment, std::size_t exact_blocks) {
  return Cutter(lifetimes, alignment, exact_blocks).run();
}

}  // namespace allocbench

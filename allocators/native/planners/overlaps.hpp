// planners/overlaps.hpp: finds the blocks that are alive together with a given block.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "planners/plan.hpp"

namespace allocbench {

// The lifetimes must outlive this object.
class Overlaps {
 public:
  explicit Overlaps(std::span<Lifetime const> lifetimes)
      : lifetimes_(lifetimes), order_(lifetimes.size()) {
    std::iota(order_.begin(), order_.end(), 0u);
    std::ranges::stable_sort(order_, {}, [&](auto block) { return lifetimes[block].first; });
    std::vector<std::uint32_t> alive;
    for (std::size_t i = 0, next = 0; i < order_.size(); ++i) {
      Lifetime const& block = lifetimes[order_[i]];
      if (i == next) {
        std::erase_if(alive, [&](auto other) { return lifetimes[other].last <= block.first; });
        lists_.push_back({i, alive});
        next = i + std::max(kLeastBetweenLists, alive.size());  // so that lists have O(n) entries
      }
      alive.push_back(order_[i]);
      begins_.push_back(block.first);
    }
  }

  // Calls `visit` for each other block that is alive together with `block`. Takes time for the
  // blocks alive when it begins, and for those that begin while it is alive.
  template <class Visit>
  void visit(std::uint32_t block, Visit visit) const {
    auto const [size, first, last] = lifetimes_[block];
    auto const later =
        static_cast<std::size_t>(std::ranges::upper_bound(begins_, first) - begins_.begin());
    auto const list = std::ranges::lower_bound(lists_, later, {}, &List::begin) - 1;
    auto const consider = [&](std::uint32_t other) {
      if (other != block && lifetimes_[other].last > first) visit(other);
    };
    for (std::uint32_t const other : list->alive) consider(other);
    for (std::size_t i = list->begin; i < order_.size() && begins_[i] < last; ++i)
      consider(order_[i]);
  }

 private:
  static constexpr std::size_t kLeastBetweenLists = 64;

  struct List {
    std::size_t begin;                 // in order_
    std::vector<std::uint32_t> alive;  // of the blocks before it
  };

  std::span<Lifetime const> lifetimes_;
  std::vector<std::uint32_t> order_, begins_;  // blocks in the order of their begin
  std::vector<List> lists_;
};

}  // namespace allocbench

// planners/ejection.cpp: repairs a plan that is too high by moving the blocks that are in the way.
// SPDX-License-Identifier: Apache-2.0
#include "planners/ejection.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace allocbench {

Ejection::Ejection(std::span<Lifetime const> lifetimes, Size alignment)
    : lifetimes_(lifetimes), alignment_(alignment), overlaps_(lifetimes) {
  std::uint32_t horizon = 0;  // the end of blocks that are never freed
  for (auto const& [size, first, last] : lifetimes)
    horizon = std::max(horizon, last == kForever ? first + 1 : last);
  for (auto const& [size, first, last] : lifetimes)
    cost_.push_back(std::sqrt(static_cast<double>(size) * (std::min(last, horizon) - first)));
}

std::optional<std::vector<Size>> Ejection::lower(std::vector<Size> offsets, Size height,
                                                 std::uint64_t moves, std::uint64_t seed,
                                                 Stop const& stop) {
  random_.seed(seed);
  offsets_ = std::move(offsets);
  placed_.assign(lifetimes_.size(), true);
  pool_.clear();
  for (Index block = 0; block < lifetimes_.size(); ++block)
    if (offsets_[block] + lifetimes_[block].size > height) {
      placed_[block] = false;
      pool_.push_back(block);
    }
  std::vector<double> const first_cost = cost_;
  Size limit = height;
  for (; !pool_.empty(); moves -= moves != 0) {
    if (stop()) return {};
    if (moves == 0) limit = std::numeric_limits<Size>::max();  // what is left goes on top
    std::swap(pool_[random_() % pool_.size()], pool_.back());
    Index const block = pool_.back();
    Size const size = lifetimes_[block].size;
    pool_.pop_back();
    find_neighbors(block);
    auto offset = lowest_gap(size, limit);
    if (!offset) {
      cost_[block] += first_cost[block];
      offset = cheapest_place(size, height);
      for (Neighbor const& other : neighbors_) {
        if (other.offset >= *offset + size || other.end <= *offset) continue;
        placed_[other.block] = false;
        pool_.push_back(other.block);
      }
    }
    offsets_[block] = *offset;
    placed_[block] = true;
  }
  return std::move(offsets_);
}

void Ejection::find_neighbors(Index block) {
  neighbors_.clear();
  overlaps_.visit(block, [&](Index other) {
    if (!placed_[other]) return;
    Size const offset = offsets_[other];
    neighbors_.push_back({offset, offset + lifetimes_[other].size, cost_[other], other});
  });
  std::ranges::sort(neighbors_, {}, &Neighbor::offset);
}

std::optional<Size> Ejection::lowest_gap(Size size, Size height) const {
  Size start = 0;  // aligned end of the blocks visited so far
  for (Neighbor const& other : neighbors_) {
    if (start + size <= other.offset) break;
    start = std::max(start, round_up(other.end, alignment_));
  }
  if (start > height || size > height - start) return {};
  return start;
}

// The offset at which the blocks in the way cost least. It is enough to try the ends of neighbors,
// and offsets where the block would end at the begin of a neighbor or at the height.
Size Ejection::cheapest_place(Size size, Size height) {
  costs_by_end_.clear();
  for (Neighbor const& other : neighbors_) costs_by_end_.emplace_back(other.end, other.cost);
  std::ranges::sort(costs_by_end_);
  Size best = 0;
  double least = std::numeric_limits<double>::infinity();
  std::uint64_t ties = 0;
  // The offsets to try must not decrease from one call to the next.
  auto const tries = [&, begun = 0.0, ended = 0.0, i = std::size_t{0},
                      j = std::size_t{0}](Size offset) mutable {
    for (; i < neighbors_.size() && neighbors_[i].offset < offset + size; ++i)
      begun += neighbors_[i].cost;
    for (; j < costs_by_end_.size() && costs_by_end_[j].first <= offset; ++j)
      ended += costs_by_end_[j].second;
    double const cost = begun - ended;
    if (cost < least * (1 - 1e-9)) {
      least = cost;
      best = offset;
      ties = 1;
    } else if (cost <= least * (1 + 1e-9) && random_() % ++ties == 0) {
      best = offset;
    }
  };
  auto from_ends = tries;
  from_ends(0);
  for (auto const& [end, cost] : costs_by_end_)
    if (Size const offset = round_up(end, alignment_); offset + size <= height) from_ends(offset);
  auto from_begins = tries;
  Size const highest = round_down(height - size, alignment_);
  for (Neighbor const& other : neighbors_)
    if (other.offset >= size && other.offset - size <= highest)
      from_begins(round_down(other.offset - size, alignment_));
  from_begins(highest);
  return best;
}

}  // namespace allocbench

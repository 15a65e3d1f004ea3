// planners/fast_planners.cpp: places each block once: as time passes, or by size, lifetime or load.
// SPDX-License-Identifier: Apache-2.0
#include "planners/fast_planners.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <ranges>
#include <string>
#include <tuple>
#include <vector>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "planners/placed_blocks.hpp"

namespace allocbench {
namespace {

// Larger than any device, and small enough that sums stay below 2^64.
constexpr Size kHighest = Size{1} << 62;

[[noreturn]] void refuse(Size size) {
  throw OutOfMemory("plan: a block of " + human_bytes(size) + " ends beyond 2^62 bytes");
}

constexpr double kLongestTime = 0x1p34;  // more than twice any time

using Order = std::vector<std::uint32_t>;

// How to stack blocks that are alive for a time before the peak and for a time after it, both
// multiplied by a weight.
struct StackRule {
  enum class Key {
    kSum,      // the larger the sum of both, the lower
    kShorter,  // the larger the smaller of both, the lower
    // Blocks that end first are at the top, those that begin last at the bottom, and those alive
    // for long in both directions between them. So what the former leave after the peak is one
    // range, and what the latter leave before it is another one.
    kBothEnds,
  };
  Key key;
  double before, after;  // weights
};
using Key = StackRule::Key;
constexpr StackRule kStackRules[kStacks] = {{Key::kBothEnds, 1, 1},
                                            {Key::kSum, 1, 0},
                                            {Key::kSum, 0, 1},
                                            {Key::kSum, 1, 1},
                                            {Key::kShorter, 1, 1}};

// The larger it is, the lower the block.
double key_of(Key key, double before, double after) {
  switch (key) {
    case Key::kSum: return before + after;
    case Key::kShorter: return std::min(before, after);
    case Key::kBothEnds: return after < before ? after : kLongestTime - before;
  }
  return 0;
}

class Planner {
 public:
  Planner(std::span<Lifetime const> lifetimes, Size alignment, Stop const& stop)
      : lifetimes_(lifetimes),
        alignment_(alignment),
        stop_(stop),
        begins_(sorted_by(&Lifetime::first, lifetimes)),
        ends_(sorted_by(&Lifetime::last, lifetimes)) {
    plan_.offsets.resize(lifetimes.size());
    find_peak();
  }

  std::optional<Plan> run(StackRule const& rule) {
    Gaps after;
    for (std::uint32_t const block : stacked(rule))
      if (!place(after, block)) return {};
    Gaps before = after;

    auto ending = std::ranges::find_if(ends_, [&](auto block) { return ends_late(block); });
    for (std::uint32_t const block :
         begins_ | std::views::filter([&](auto other) { return !begins_early(other); })) {
      for (; lifetimes_[*ending].last <= lifetimes_[block].first; ++ending) remove(after, *ending);
      if (!place(after, block)) return {};
    }
    auto const backwards = begins_ | std::views::reverse;
    auto begun = std::ranges::find_if(backwards, [&](auto block) { return begins_early(block); });
    for (std::uint32_t const block :
         ends_ | std::views::reverse |
             std::views::filter([&](auto other) { return !ends_late(other); })) {
      for (; lifetimes_[*begun].first >= lifetimes_[block].last; ++begun) remove(before, *begun);
      if (!place(before, block)) return {};
    }
    plan_.height = std::max(after.high_water_mark(), before.high_water_mark());
    return std::move(plan_);
  }

 private:
  void find_peak() {
    Size load = 0, highest = 0;
    auto ending = ends_.begin();
    for (std::uint32_t const block : begins_) {
      for (; lifetimes_[*ending].last <= lifetimes_[block].first; ++ending)
        load -= round_up(lifetimes_[*ending].size, alignment_);
      load += round_up(lifetimes_[block].size, alignment_);
      if (load <= highest) continue;
      highest = load;
      peak_ = lifetimes_[block].first;
    }
  }

  bool begins_early(std::uint32_t block) const { return lifetimes_[block].first <= peak_; }
  bool ends_late(std::uint32_t block) const { return lifetimes_[block].last > peak_; }

  // The blocks alive at the peak, from the bottom up.
  Order stacked(StackRule const& rule) const {
    std::vector<std::pair<double, std::uint32_t>> keys;
    for (std::uint32_t const block : begins_) {
      if (!begins_early(block) || !ends_late(block)) continue;
      double const before = rule.before * (peak_ - lifetimes_[block].first + 1);
      double const after = rule.after * (lifetimes_[block].last - peak_);
      keys.emplace_back(key_of(rule.key, before, after), block);
    }
    std::ranges::stable_sort(keys, std::greater{}, [](auto const& key) { return key.first; });
    Order order;
    for (auto const& [key, block] : keys) order.push_back(block);
    return order;
  }

  // Returns false if there is no more time.
  bool place(Gaps& gaps, std::uint32_t block) {
    plan_.offsets[block] = gaps.place(lifetimes_[block].size, alignment_);
    return ++placed_ % kBlocksBetweenStops != 0 || !stop_();
  }
  void remove(Gaps& gaps, std::uint32_t block) {
    gaps.remove(plan_.offsets[block], lifetimes_[block].size);
  }

  std::span<Lifetime const> lifetimes_;
  Size alignment_;
  Stop const& stop_;
  Order begins_, ends_;  // blocks in the order of their begin and end
  std::uint32_t peak_ = 0;
  std::size_t placed_ = 0;
  Plan plan_;
};

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

std::optional<Plan> plan_in_execution_order(std::span<Lifetime const> lifetimes, Size alignment,
                                            Stop const& stop) {
  check_alignment(alignment);
  auto const begins = sorted_by(&Lifetime::first, lifetimes);
  auto const ends = sorted_by(&Lifetime::last, lifetimes);

  Gaps gaps;
  Plan plan{std::vector<Size>(lifetimes.size()), 0};
  std::size_t done = 0;
  bool stopped = false;
  auto ending = ends.begin();
  for (std::uint32_t const block : begins) {
    for (; lifetimes[*ending].last <= lifetimes[block].first; ++ending)
      gaps.remove(plan.offsets[*ending], lifetimes[*ending].size);
    stopped = stopped || (++done % kBlocksBetweenStops == 0 && stop());
    Size const size = lifetimes[block].size;
    plan.offsets[block] =
        stopped ? gaps.place_on_top(size, alignment) : gaps.place(size, alignment);
  }
  plan.height = gaps.high_water_mark();
  return plan;
}

std::optional<Plan> plan_from_peak(std::span<Lifetime const> lifetimes, Size alignment,
                                   std::size_t stack, Stop const& stop) {
  check_alignment(alignment);
  return Planner(lifetimes, alignment, stop).run(kStackRules[stack]);
}

namespace {

// The gap that a block takes among those that are large enough. The tightest one is that with the
// fewest bytes, and the lowest among equals. kTightest compares the bytes above the aligned start
// of each gap; kTightestAsTflite compares them with all bytes of the best gap so far.
enum class Gap { kTightest, kTightestAsTflite, kLowest };

Size place(PlacedBlocks const& placed, Lifetime const& block, Size alignment, Gap gap) {
  std::optional<Size> best;
  Size smallest = 0;  // bytes of the best gap
  placed.gaps(block, [&](Size offset, Size end) {
    Size const start = round_up(offset, alignment);
    if (start + block.size > end || (best && (gap == Gap::kLowest || end - start >= smallest)))
      return;
    best = start;
    smallest = end - (gap == Gap::kTightestAsTflite ? offset : start);
  });
  return *best;
}

// Empty if `stop` returned true.
std::optional<Plan> place_in(Order const& order, std::span<Lifetime const> lifetimes,
                             Size alignment, Gap gap, Stop const& stop) {
  PlacedBlocks placed(lifetimes);
  Plan plan{std::vector<Size>(lifetimes.size()), 0};
  std::size_t done = 0;
  for (std::uint32_t const block : order) {
    if (++done % kBlocksBetweenStops == 0 && stop()) return {};
    plan.offsets[block] = place(placed, lifetimes[block], alignment, gap);
    placed.add(lifetimes[block], plan.offsets[block]);
  }
  plan.height = placed.height();
  return plan;
}

Order as_given(std::size_t blocks) {
  Order order(blocks);
  std::iota(order.begin(), order.end(), 0u);
  return order;
}

struct SortKey {
  bool hottest_first;   // blocks are sorted by their peak load first
  double bytes, alive;  // exponents of the size and of the lifetime in the sort key
};
constexpr SortKey kSortKeys[] = {{true, 1, 0}, {false, 1, 0},    {true, 1, 1}, {false, 1, 0.5},
                                 {true, 0, 1}, {false, 1, 0.75}, {false, 1, 1}};

}  // namespace

std::optional<Plan> plan_no_reuse(std::span<Lifetime const> lifetimes, Size alignment,
                                  Stop const&) {
  Plan plan;
  plan.offsets.reserve(lifetimes.size());
  for (Lifetime const& block : lifetimes) {
    plan.offsets.push_back(round_up(plan.height, alignment));
    plan.height = plan.offsets.back() + block.size;
  }
  return plan;
}

std::optional<Plan> plan_best_fit(std::span<Lifetime const> lifetimes, Size alignment,
                                  Stop const& stop) {
  Order order = as_given(lifetimes.size());
  std::ranges::stable_sort(order, std::greater{}, [&](auto block) {
    return std::pair(lifetimes[block].size, lifetimes[block].last - lifetimes[block].first);
  });
  return place_in(order, lifetimes, alignment, Gap::kTightest, stop);
}

std::optional<Plan> plan_greedy_by_size(std::span<Lifetime const> lifetimes, Size alignment,
                                        Stop const& stop) {
  Order order = as_given(lifetimes.size());
  auto const rest = std::ranges::stable_partition(order, [&](auto block) {
    return lifetimes[block].first == 0 && lifetimes[block].last == kForever;
  });
  std::ranges::sort(rest, [&](auto a, auto b) {
    Lifetime const &left = lifetimes[a], &right = lifetimes[b];
    return std::tie(right.size, left.first, b) < std::tie(left.size, right.first, a);
  });
  return place_in(order, lifetimes, alignment, Gap::kTightestAsTflite, stop);
}

std::optional<Plan> plan_reordered(std::span<Lifetime const> lifetimes, Size alignment,
                                   std::uint64_t attempt, Stop const& stop) {
  SortKey const& sort = kSortKeys[attempt % std::size(kSortKeys)];
  std::mt19937_64 random(attempt);
  std::vector<double> keys;
  for (auto const& [size, first, last] : lifetimes) {
    keys.push_back(std::pow(size, sort.bytes) * std::pow(last - first, sort.alive));
    if (attempt >= std::size(kSortKeys))
      keys.back() *= 1 + static_cast<double>(random() % 1024) / 4096;
  }
  if (stop()) return {};
  auto const peaks = sort.hottest_first ? peak_loads(lifetimes) : std::vector<Size>(keys.size());
  if (stop()) return {};
  Order order = as_given(lifetimes.size());
  std::ranges::stable_sort(order, std::greater{},
                           [&](auto block) { return std::pair(peaks[block], keys[block]); });
  if (stop()) return {};
  return place_in(order, lifetimes, alignment, Gap::kLowest, stop);
}

}  // namespace allocbench

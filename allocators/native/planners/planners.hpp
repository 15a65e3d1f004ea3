// planners/planners.hpp: planners by name, and what they share: lifetimes, plans, lower bounds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "core/types.hpp"

namespace allocbench {

constexpr std::uint32_t kForever = std::numeric_limits<std::uint32_t>::max();

// A block is alive from event `first` up to but not including `last`; a `last` of kForever means
// that it is never freed. Graphs and files with inclusive ends are converted where they are read.
struct Lifetime {
  Size size;
  std::uint32_t first;
  std::uint32_t last;
};

// The numbers of the blocks, in the order in which they begin (&Lifetime::first) or end.
std::vector<std::uint32_t> sorted_by(std::uint32_t Lifetime::* instant,
                                     std::span<Lifetime const> lifetimes);

// Called periodically by planners that take long; returning true asks them to end.
using Stop = std::function<bool()>;

constexpr std::size_t kBlocksBetweenStops = 64;  // of planners that place one block after another

struct Plan {
  std::vector<Size> offsets;  // one per lifetime, in the same order
  Size height = 0;            // bytes from offset 0 to the highest end
};

// What a search for a plan of a given height answers. kNone: it has proved that no plan exists.
enum class Answer { kFound, kNone, kUnknown };

// The largest sum of the sizes of blocks alive at the same instant. O(n log n) time.
Size max_load(std::span<Lifetime const> lifetimes);

// A lower bound for plans with aligned offsets: of the blocks alive at an instant, all except the
// highest one occupy their size rounded up. It is at least max_load, and equal to it if all sizes
// are multiples of the alignment. O(n log n) time.
Size least_height(std::span<Lifetime const> lifetimes, Size alignment);

// For each block, the largest sum of the sizes of blocks alive at the same instant while it is
// alive. O(n log n) time.
std::vector<Size> peak_loads(std::span<Lifetime const> lifetimes);

struct Progress {
  double seconds;    // since the planner started
  Size height;       // of the lowest plan so far
  Size lower_bound;  // no plan can be lower
};

struct SearchBudget {
  double seconds = 10;  // time limit
  // Called about ten times per second; returning false stops the planner early.
  std::function<bool(Progress const&)> report = [](Progress const&) { return true; };
  // Seconds since any fixed time. All searches ask it often, so a test can count and end them.
  std::function<double()> clock = monotonic;

  static double monotonic();
};

struct BoundedPlan {
  Plan plan;
  Size lower_bound = 0;  // no plan can be lower; if equal to the height, the plan is optimal
};

// The lowest plan that it finds within the budget; docs/planners.md says how it searches.
// Exceptions of `report` and `clock` are passed on.
BoundedPlan plan_exact(std::span<Lifetime const> lifetimes, Size alignment,
                       SearchBudget const& budget = {});

struct PlannerInfo {
  std::string_view name;
  std::string_view summary;
  std::string_view reference;
  BoundedPlan (*make)(std::span<Lifetime const>, Size alignment, SearchBudget const&);
};

// Sorted by name.
std::span<PlannerInfo const> planners();

// Throws SpecError for an unknown name and lists the valid ones.
PlannerInfo const& planner(std::string_view name);

// Throws SpecError for a block with no bytes or no lifetime, if the sizes add up to 2^62 or more,
// and for an alignment that is not a power of two. `budget` applies only to the exact planner.
BoundedPlan plan(std::string_view planner, std::span<Lifetime const> lifetimes, Size alignment,
                 SearchBudget const& budget = {});

}  // namespace allocbench

// strategies/planned/periodic.hpp: plans a step that repeats, and remembers such plans.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "planners/planners.hpp"

namespace allocbench {

// A block of a repeating step, alive from the step's request `first` up to but not including
// request `last`. If `last` <= `first`, it is freed in the next step, before that step's request
// `last`.
struct Arc {
  Size size;
  std::uint32_t first;
  std::uint32_t last;
};

// kSize: largest first. kDuration: longest alive first, in classes of powers of two, and the
// largest of a class first.
enum class ArcOrder : std::uint8_t { kSize, kDuration };

// Places the blocks in this order, each in the tightest gap and the lowest among equals. By size,
// this is `greedy_by_size` on circular time. Blocks that outlive the step take the lowest gap, so
// that they leave the next step large gaps. The first blocks keep the offsets in `given`, which
// must not overlap. Sizes are rounded up to `alignment`. O(n^2) time.
Plan plan_periodic(std::span<Arc const> arcs, Size alignment, std::span<Size const> given = {},
                   ArcOrder order = ArcOrder::kSize);

// Plans the same blocks with other sizes: each as low as possible, in the vertical order of an
// earlier plan with these `offsets`. Since both plans have the same vertical order, a plan with
// sizes and offsets interpolated between them in the same proportion is valid too. O(n log n)
// time.
Plan plan_in_order(std::span<Arc const> arcs, std::span<Size const> offsets);

// The largest sum of the sizes of blocks alive at the same request. O(n + requests)
// time.
Size max_load(std::span<Arc const> arcs);

// A hash of a sequence of numbers.
class Hash {
 public:
  void add(std::uint64_t number) {
    value_ = (value_ ^ number) * 0x9E3779B97F4A7C15u + (value_ >> 29);
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0;
};

// Steps that differ only in requests without places pose the same problem: their blocks have the
// same sizes, and their lifetimes overlap in the same way. So does a kind of step, and a step of it
// that repeats exactly. A search is remembered by a hash of that problem.
class PeriodicMemo {
 public:
  // As plan_periodic, but takes O(n) time if the same problem is remembered.
  Plan plan(std::span<Arc const> arcs, Size alignment, std::span<Size const> given = {},
            ArcOrder order = ArcOrder::kSize);

 private:
  static constexpr std::size_t kMost = 16;
  struct Search {
    std::uint64_t problem = 0;
    Plan plan;
  };

  std::array<Search, kMost> searches_;
  std::size_t next_ = 0;  // the one that is overwritten next
};

}  // namespace allocbench

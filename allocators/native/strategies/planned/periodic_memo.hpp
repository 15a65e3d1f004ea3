// strategies/planned/periodic_memo.hpp: plans that were searched before.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "strategies/planned/periodic.hpp"

namespace allocbench {

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

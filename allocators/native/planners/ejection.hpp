// planners/ejection.hpp: repairs a plan that is too high by moving the blocks that are in the way.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "planners/overlaps.hpp"
#include "planners/plan.hpp"

namespace allocbench {

// Local search for large inputs: a move looks only at the blocks alive together with one block.
//
// The blocks that end above the wanted height are taken out of the plan, and put back one by one,
// each into the lowest gap that is large enough. A block for which no gap is large enough takes the
// place where the blocks in the way are cheapest, and these are taken out instead. Small and short
// blocks are cheap. A block becomes more expensive each time that no gap is large enough for it, so
// blocks that are hard to place keep their places in the end. After the ejection pool of Nagata and
// Braysy, "A powerful route minimization heuristic for the vehicle routing problem with time
// windows" (2009).
class Ejection {
 public:
  // The lifetimes must outlive this object.
  Ejection(std::span<Lifetime const> lifetimes, Size alignment);

  // Returns offsets of a plan that is at most `height` bytes high, or of a plan without the
  // remaining conflicts that is higher; empty if `stop`, which is called before each move, returned
  // true. `offsets`: of a valid plan. The result depends only on the arguments.
  std::optional<std::vector<Size>> lower(std::vector<Size> offsets, Size height,
                                         std::uint64_t moves, std::uint64_t seed, Stop const& stop);

 private:
  using Index = std::uint32_t;

  struct Neighbor {  // a placed block that is alive together with the block to place
    Size offset, end;
    double cost;
    Index block;
  };

  void find_neighbors(Index block);
  std::optional<Size> lowest_gap(Size size, Size height) const;
  Size cheapest_place(Size size, Size height);

  std::span<Lifetime const> lifetimes_;
  Size alignment_;
  Overlaps overlaps_;
  std::vector<double> cost_;  // of taking each block out

  std::vector<Size> offsets_;
  std::vector<char> placed_;         // whether each block has an offset
  std::vector<Index> pool_;          // blocks without an offset
  std::vector<Neighbor> neighbors_;  // in the order of their offsets
  std::vector<std::pair<Size, double>> costs_by_end_;
  std::mt19937_64 random_;
};

}  // namespace allocbench

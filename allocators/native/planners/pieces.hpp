// planners/pieces.hpp: cuts lifetimes into pieces that can be planned one by one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "planners/plan.hpp"

namespace allocbench {

// Blocks that share no instant with other pieces. They may take any offset from `base` up.
struct Piece {
  std::vector<std::uint32_t> blocks;
  Size base;
};

struct Pieces {
  std::vector<Piece> pieces;
  std::vector<Size> offsets;  // one per lifetime; only those of settled blocks are valid
  Size height = 0;            // of the settled blocks
  bool lossless = true;  // the lowest plan that keeps the settled blocks is the lowest of all plans
};

// Cuts time where no block is alive. In each stretch between cuts, a block that is alive together
// with all others, such as the weights of a model, is settled: it goes to the bottom, where it can
// change places with the blocks below it in any plan. The others are cut further. The exchange
// costs nothing if the size of the settled block is a multiple of the alignment. In stretches of
// more than `exact_blocks` blocks, others are settled too, which can cost less than `alignment`
// bytes.
Pieces cut(std::span<Lifetime const> lifetimes, Size alignment, std::size_t exact_blocks);

}  // namespace allocbench

// planners/scaled_boxes.hpp: boxes with sizes in units, for searches for a plan of a given height.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planners/plan.hpp"
#include "planners/sections.hpp"

namespace allocbench {

using Units = std::uint32_t;  // of bytes: half as wide as Size, so loops are twice as fast

struct ScaledBox {
  std::uint32_t lo, hi;  // sections, half-open
  Units size;
  Units limit;  // the highest offset at which the box stays below the height
  std::uint64_t kind;
  std::uint32_t block;
};

struct ScaledBoxes {
  std::vector<ScaledBox> boxes;  // in the order of Sections
  std::vector<Units> loads;      // of each section
  Size unit;                     // bytes
  Units height;                  // the highest end of a box, rounded up
  bool exact;                    // false if sizes were rounded up to a larger unit
};

// Empty if a section is too full for a plan of at most `height` bytes. A unit is what all rounded
// sizes have in common. If heights in this unit need more than 30 bits, it is larger and sizes are
// rounded up, so plans without any waste may be missing.
std::optional<ScaledBoxes> scaled(Sections const& sections, Size height, Size alignment);

}  // namespace allocbench

// strategies/bfc/log.hpp: a text dump of the memory for an out-of-memory message.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/types.hpp"

namespace allocbench {

// Three parts, each line indented by two spaces: the chunks by bin; the totals; and a map with a
// row for each region, divided into at most 64 equal parts: '.' is free, '#' fully in use, and a
// digit the tenths in use. Regions after the first 64 are only counted.
std::string memory_log(std::vector<Segment> const& regions, Size peak_in_use, Size memory_limit);

}  // namespace allocbench

// strategies/bfc/log.hpp: what the memory looks like, in words, for a request that was refused.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/types.hpp"

namespace allocbench {

// Three parts, each line indented by two spaces: the chunks by bin; all in one; and a map with a
// row for each region, of at most 64 equal parts: '.' where nothing is in use, '#' where all is,
// else how many tenths are. Regions beyond the first 64 are only counted.
std::string memory_log(std::vector<Segment> const& regions, Size peak_in_use, Size memory_limit);

}  // namespace allocbench

// strategies/bfc/log.hpp: a text dump of the memory for an out-of-memory message.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/types.hpp"

namespace allocbench {

// A text of three parts, with each line indented by two spaces: the chunks by bin; the totals in
// bytes; and a map with a row for each region. A row divides its region into at most 64 equal
// parts:
// '.' is free, '#' is fully in use, and a digit counts the tenths in use. Regions after the first
// 64 are only counted.
std::string memory_log(std::vector<Segment> const& regions, Size peak_in_use, Size memory_limit);

}  // namespace allocbench

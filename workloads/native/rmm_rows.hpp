// rmm_rows.hpp: reads the rows of a log of RMM.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace allocbench {

// The rows of a log as RMM writes it:
//
//   2342727,15:47:02.841961,allocate,0x7f0012400000,1048576,0x0
//
// One element of each column per row, in order. time: nanoseconds since midnight. A failed request
// is a request, too: an alloc at kNowhere and its free, so two elements.
struct RmmRows {
  static constexpr std::uint64_t kNowhere = std::uint64_t{1} << 63;  // no pointer is as large

  std::vector<std::uint8_t> is_alloc;
  std::vector<std::uint64_t> address, size;
  std::vector<std::int64_t> stream, time;
  std::uint64_t failures = 0;

  // Adds whole lines. Returns false if RMM does not write one of them like this; what was added is
  // then not defined.
  bool read(std::string_view lines);
};

}  // namespace allocbench

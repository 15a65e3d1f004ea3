// trace_view.cpp: the arrays of a trace, and what makes them valid.
// SPDX-License-Identifier: Apache-2.0
#include "trace_view.hpp"

#include <algorithm>
#include <stdexcept>

namespace allocbench {
namespace {

void find_bad_event(TraceView const& trace) {
  std::size_t const events = trace.events();
  for (std::size_t event = 0; event < events; ++event) {
    if (trace.op[event] > static_cast<std::uint8_t>(Op::kPoolRelease))
      bad_trace(event, "unknown op " + std::to_string(trace.op[event]));
    if (trace.op[event] <= static_cast<std::uint8_t>(Op::kFree) && trace.block[event] >= events)
      bad_trace(event, "block " + std::to_string(trace.block[event]) + " is out of range");
  }
}

}  // namespace

std::size_t check_arrays(TraceView const& trace) {
  std::size_t const events = trace.events();
  if (trace.block.size() != events || trace.size.size() != events ||
      trace.stream.size() != events || (!trace.pool.empty() && trace.pool.size() != events))
    throw std::invalid_argument("not a valid trace: the arrays differ in length");
  // Masks instead of branches: a replay that stops early takes hardly longer than these loops.
  std::uint8_t highest_op = 0;
  std::uint32_t highest_block = 0;
  std::uint64_t low = 0, high = 0;  // sums of the lower and upper halves of the sizes
  for (std::size_t event = 0; event < events; ++event) {
    std::uint8_t const op = trace.op[event];
    std::uint32_t const has_block = op <= static_cast<std::uint8_t>(Op::kFree);
    highest_op = std::max(highest_op, op);
    highest_block = std::max(highest_block, trace.block[event] & -has_block);
  }
  for (std::size_t event = 0; event < events; ++event) {
    std::uint64_t const has_size = trace.op[event] == static_cast<std::uint8_t>(Op::kAlloc);
    std::uint64_t const size = trace.size[event] & -has_size;
    low += size & 0xffffffff;
    high += size >> 32;
  }
  if (highest_op > static_cast<std::uint8_t>(Op::kPoolRelease) ||
      (events > 0 && highest_block >= events))
    find_bad_event(trace);
  std::size_t first = 0;
  for (HeldSegment const& held : trace.layout)
    for (std::size_t block = 0; block < held.segment.blocks.size(); ++block, ++first)
      if (first >= events || trace.op[first] != static_cast<std::uint8_t>(Op::kAlloc))
        bad_trace(first, "is not the alloc of a block of the layout");
  if (high + (low >> 32) >= std::uint64_t{1} << 31)
    throw std::invalid_argument("not a valid trace: its allocs add up to 2^63 bytes or more");
  return events == 0 ? 0 : std::size_t{highest_block} + 1;
}

void bad_trace(std::size_t event, std::string const& rule) {
  throw std::invalid_argument("not a valid trace: event " + std::to_string(event) + ": " + rule);
}

}  // namespace allocbench

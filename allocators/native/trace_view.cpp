// trace_view.cpp: a trace as parts, which are arrays, and what makes them valid.
// SPDX-License-Identifier: Apache-2.0
#include "trace_view.hpp"

#include <algorithm>
#include <stdexcept>

namespace allocbench {

std::size_t PartChecks::check(TracePart const& part, std::size_t first) {
  std::size_t const events = part.events();
  if (part.block.size() != events || part.size.size() != events || part.stream.size() != events ||
      (!part.pool.empty() && part.pool.size() != events) ||
      (!part.id.empty() && part.id.size() != events))
    throw std::invalid_argument("not a valid trace: the arrays differ in length");
  if (events == 0 || events > trace_.events - first)
    throw std::invalid_argument("not a valid trace: its parts do not have " +
                                std::to_string(trace_.events) + " events in all");
  // Masks instead of branches: a replay that stops early takes hardly longer than these loops.
  std::uint8_t highest_op = 0;
  std::uint32_t highest_block = 0;
  for (std::size_t event = 0; event < events; ++event) {
    std::uint8_t const op = part.op[event];
    std::uint32_t const has_block = op <= static_cast<std::uint8_t>(Op::kFree);
    highest_op = std::max(highest_op, op);
    highest_block = std::max(highest_block, part.block[event] & -has_block);
  }
  std::uint64_t low = 0, high = 0;
  for (std::size_t event = 0; event < events; ++event) {
    std::uint64_t const has_size = part.op[event] == static_cast<std::uint8_t>(Op::kAlloc);
    std::uint64_t const size = part.size[event] & -has_size;
    low += size & 0xffffffff;
    high += size >> 32;
  }
  low_ += low;
  high_ += high;
  if (highest_op > static_cast<std::uint8_t>(Op::kPoolRelease) || highest_block >= trace_.events)
    find_bad_event(part, first);
  if (first == 0) {
    std::size_t block = 0;
    for (HeldSegment const& held : trace_.layout)
      for (std::size_t n = 0; n < held.segment.blocks.size(); ++n, ++block)
        if (block >= events || part.op[block] != static_cast<std::uint8_t>(Op::kAlloc))
          bad_trace(block, "is not the alloc of a block of the layout");
  }
  if (high_ + (low_ >> 32) >= std::uint64_t{1} << 31)
    throw std::invalid_argument("not a valid trace: its allocs add up to 2^63 bytes or more");
  return std::size_t{highest_block} + 1;
}

void PartChecks::find_bad_event(TracePart const& part, std::size_t first) const {
  for (std::size_t event = 0; event < part.events(); ++event) {
    if (part.op[event] > static_cast<std::uint8_t>(Op::kPoolRelease))
      bad_trace(first + event, "unknown op " + std::to_string(part.op[event]));
    if (part.op[event] <= static_cast<std::uint8_t>(Op::kFree) &&
        part.block[event] >= trace_.events)
      bad_trace(first + event, "block " + std::to_string(part.id_at(event)) + " is out of range");
  }
}

void bad_trace(std::size_t event, std::string const& rule) {
  throw std::invalid_argument("not a valid trace: event " + std::to_string(event) + ": " + rule);
}

}  // namespace allocbench

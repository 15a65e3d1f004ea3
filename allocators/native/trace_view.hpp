// trace_view.hpp: the arrays of a trace, and what makes them valid.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/allocator.hpp"

namespace allocbench {

// What a program calls before an event to change how its allocator works: first a trim, if `trim`
// is true, then what Allocator::change_settings and change_memory_fraction take.
struct Change {
  std::size_t event = 0;
  bool trim = false;
  std::optional<std::string> settings;
  std::optional<double> memory_fraction;
};

// Arrays of equal length with one element per event. A mark whose `block` is `step_label` begins a
// step; allocators ignore other marks.
struct TraceView {
  std::span<std::uint8_t const> op;
  std::span<std::uint32_t const> block;
  std::span<std::uint64_t const> size;
  std::span<std::uint16_t const> stream;
  std::int64_t step_label;
  // The segments that the program held when the trace began. The trace begins with the allocs of
  // the blocks in them, in order of address. If the allocator can adopt the segments, these allocs
  // are not replayed.
  std::vector<HeldSegment> layout = {};
  // The private pool of each event, 0 for memory outside of them; empty: none has one. A free may
  // have any, because its block knows its pool.
  std::span<std::uint16_t const> pool = {};
  std::vector<PoolTraits> pools = {};  // of the private pools 1, 2, ...
  std::vector<Change> changes = {};    // in the order of their events

  std::size_t events() const { return op.size(); }
  PoolId pool_at(std::size_t event) const { return pool.empty() ? 0 : pool[event]; }
};

// Checks what can be checked without a replay: lengths, ops, ids and the sum of the sizes. Returns
// a number above every block id, 0 for an empty trace. Throws as bad_trace does.
std::size_t check_arrays(TraceView const& trace);

// Throws std::invalid_argument that names the event and the rule that it breaks.
[[noreturn]] void bad_trace(std::size_t event, std::string const& rule);

}  // namespace allocbench

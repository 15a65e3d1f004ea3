// replay.hpp: replays a trace through an allocator to measure, time or try it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/allocator.hpp"
#include "detail.hpp"

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

// The state after an event. `largest_free` is always 0 for a strategy that keeps no free blocks.
struct Moment {
  std::uint64_t event = 0;
  Size requested = 0;
  Size allocated = 0;
  Size reserved = 0;
  Size largest_free = 0;
};

// Where the block of an alloc event was placed; segment and offset are -1 if the request failed.
struct BlockPlacement {
  std::uint32_t block;
  std::int64_t segment;
  std::int64_t offset;
  Size size;
};

// Receives the placements in order, in batches.
using PlacementSink = std::function<void(std::vector<BlockPlacement> const&)>;

// `stats`, `device` and `counters` hold the values after the last event.
struct Measurement {
  Size max_load = 0;  // peak of the requested bytes of the blocks alive in the trace
  Moment peak;        // the event at which reserved bytes first reached their maximum
  Stats stats;
  DeviceStats device;
  Counters counters;
  double internal_fragmentation_mean = 0;  // mean over all events
  double external_fragmentation_mean = 0;  // mean over the timeline; 0 where it does not apply
  std::vector<Moment> timeline;
  std::optional<Detail> detail;
};

// The following functions throw std::invalid_argument, with the event, if the arrays are not a
// valid trace, and SpecError for a change that the allocator cannot make. A failing request is
// counted and the replay continues; the free of its block is skipped. Blocks still alive at the end
// are freed after the measurement.

// `samples` is the approximate length of the timeline; `placements` may be empty. With `keep`,
// blocks still alive at the end are not freed. With `detail`, the replay also takes snapshots at
// intervals, which adds to the allocator's search steps.
Measurement measure(TraceView const& trace, Allocator& allocator, std::size_t samples,
                    PlacementSink const& placements, bool keep, bool detail);

// Seconds per event of one pass over the whole trace.
double time_pass(TraceView const& trace, Allocator& allocator);

// Seconds of each alloc and each free, minus the cost of reading the timer.
struct Latencies {
  std::vector<float> alloc;
  std::vector<float> free;
  double timer_seconds = 0;  // cost of a timer reading, subtracted from each
};
Latencies time_each(TraceView const& trace, Allocator& allocator);

// True if every request succeeds. Stops at the first failure.
bool completes(TraceView const& trace, Allocator& allocator);

}  // namespace allocbench

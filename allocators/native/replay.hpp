// replay.hpp: replays a trace through an allocator to measure, time or try it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/abilities.hpp"
#include "detail.hpp"

namespace allocbench {

// What a program calls before an event to change how its allocator works: first a trim, if `trim`
// is true, then what LiveSettings::change_settings and change_memory_fraction take.
struct Change {
  std::size_t event = 0;
  bool trim = false;
  std::optional<std::string> settings;
  std::optional<double> memory_fraction;
};

// A trace that is read once, part by part. A trace in memory is one part.
struct TraceView {
  std::size_t events;
  std::int64_t step_label;
  // The segments that the program held when the trace began. The trace begins with the allocs of
  // the blocks in them, in order of address, all in the first part. If the allocator can adopt the
  // segments, these allocs are not replayed.
  std::vector<HeldSegment> layout = {};
  std::vector<PoolTraits> pools = {};  // of the private pools 1, 2, ...
  std::vector<Change> changes = {};    // in the order of their events
  // Returns the next part, which is valid until the next call; an empty one after the last.
  std::function<TracePart()> next = {};
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
  Size requested;
  std::uint64_t step;  // steps that had begun
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

// The following functions read the trace once. They throw std::invalid_argument, with the event, if
// a part is not that of a valid trace, SpecError for a change that the allocator cannot make, and
// what reading a part throws. A failing request is counted and the replay continues; the free of
// its block is skipped. Blocks still alive at the end, or when something is thrown, are freed.

// `samples` is the approximate length of the timeline; `placements` may be empty. With `keep`,
// blocks still alive at the end are not freed. With `detail`, the replay also takes snapshots at
// intervals, which adds to the allocator's search steps.
Measurement measure(TraceView const& trace, Allocator& allocator, std::size_t samples,
                    PlacementSink const& placements, bool keep, bool detail);

// Seconds per event of one pass over the whole trace, without reading its parts.
double time_pass(TraceView const& trace, Allocator& allocator);

// Seconds of each alloc and each free of a part, minus the cost of reading the timer.
struct Latencies {
  std::vector<float> alloc;
  std::vector<float> free;
};
using LatencySink = std::function<void(Latencies)>;

// Gives the latencies of each part to `sink`. Returns the seconds that reading the timer costs,
// which are subtracted from each latency.
double time_each(TraceView const& trace, Allocator& allocator, LatencySink const& sink);

// The first event whose request fails, where the replay stops; nothing if every request succeeds.
std::optional<std::size_t> failing_event(TraceView const& trace, Allocator& allocator);

}  // namespace allocbench

// replay.hpp: a trace run through an allocator: measured, timed, or just tried.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/allocator.hpp"
#include "detail.hpp"

namespace allocbench {

// Arrays of equal length, one element for each event. A mark whose `block` is `step_label`
// begins a step; other marks mean nothing to an allocator.
struct TraceView {
  std::span<std::uint8_t const> op;
  std::span<std::uint32_t const> block;
  std::span<std::uint64_t const> size;
  std::span<std::uint16_t const> stream;
  std::int64_t step_label;

  std::size_t events() const { return op.size(); }
};

// The state after an event. The largest free block is 0 throughout for a strategy that keeps no
// free blocks for later requests.
struct Moment {
  std::uint64_t event = 0;
  Size requested = 0;
  Size allocated = 0;
  Size reserved = 0;
  Size largest_free = 0;
};

// Where an alloc event was placed; segment and offset are -1 when it failed.
struct Placed {
  std::uint32_t block;
  std::int64_t segment;
  std::int64_t offset;
  Size size;
};

// Gets the placements in order, some thousands at a time.
using PlacementSink = std::function<void(std::vector<Placed> const&)>;

// `stats`, `device` and `counters` are those after the last event.
struct Measurement {
  Size max_load = 0;  // bytes of the blocks alive in the trace, at most
  Moment peak;        // when reserved bytes first had their maximum
  Stats stats;
  DeviceStats device;
  Counters counters;
  double internal_fragmentation_mean = 0;  // over all events
  double external_fragmentation_mean = 0;  // over the timeline; 0 where it does not apply
  std::vector<Moment> timeline;
  std::optional<Detail> detail;
};

// All throw std::invalid_argument, naming the event, for arrays that are no trace. A request that
// fails is counted and the replay goes on; the free of its block is skipped. Blocks that live at
// the end of the trace are freed, outside of what is measured.

// `samples`: about how many moments the timeline shall have. `placements` may be empty. With
// `keep`, blocks that live at the end stay. With `detail` the allocator is looked at now and then,
// which counts as steps of its own.
Measurement measure(TraceView const& trace, Allocator& allocator, std::size_t samples,
                    PlacementSink const& placements, bool keep, bool detail);

// Seconds per event of one pass over the whole trace.
double time_pass(TraceView const& trace, Allocator& allocator);

// Seconds of each alloc and of each free, the cost of reading the timer subtracted.
struct Latencies {
  std::vector<float> alloc;
  std::vector<float> free;
  double timer_seconds = 0;  // what was subtracted from each
};
Latencies time_each(TraceView const& trace, Allocator& allocator);

// Does every request succeed? Stops at the first that fails.
bool completes(TraceView const& trace, Allocator& allocator);

}  // namespace allocbench

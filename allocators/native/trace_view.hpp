// trace_view.hpp: a trace as parts, which are arrays, and what makes them valid.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/abilities.hpp"

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

// Checks what can be checked without a replay: lengths, ops, block numbers and the sum of the
// sizes.
class PartChecks {
 public:
  explicit PartChecks(TraceView const& trace) : trace_(trace) {}

  // Checks the next part, whose first event is the event `first` of the trace. Returns a number
  // above all block numbers of the part. Throws as bad_trace does.
  std::size_t check(TracePart const& part, std::size_t first);

 private:
  void find_bad_event(TracePart const& part, std::size_t first) const;

  TraceView const& trace_;
  std::uint64_t low_ = 0, high_ = 0;  // sums of the lower and upper halves of the sizes
};

// Throws std::invalid_argument that names the event and the rule that it breaks.
[[noreturn]] void bad_trace(std::size_t event, std::string const& rule);

}  // namespace allocbench

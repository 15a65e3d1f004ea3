// core/stats.hpp: the statistics of every allocator and every device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/types.hpp"

namespace allocbench {

// A number of bytes and its highest value so far.
struct Gauge {
  Size current = 0;
  Size peak = 0;

  void add(Size bytes) {
    current += bytes;
    peak = std::max(peak, current);
  }
  void subtract(Size bytes) { current -= bytes; }
};

struct Stats {
  Gauge requested;
  Gauge allocated;
  Gauge reserved;
  std::uint64_t allocations = 0;  // requests served
  std::uint64_t frees = 0;
  std::uint64_t failures = 0;  // requests refused
  std::uint64_t retries = 0;   // requests that first returned cached memory to the device
};

// Calls to the device and their cost in seconds: modelled on a simulated device, measured on a real
// one. Refused calls are included.
struct DeviceStats {
  std::uint64_t malloc_calls = 0;
  std::uint64_t free_calls = 0;
  std::uint64_t map_calls = 0;
  std::uint64_t unmap_calls = 0;
  std::uint64_t refused_calls = 0;  // mallocs and maps
  double seconds = 0;
  // Of a simulated device: how many calls each point of its cost curves counts for, so that the
  // seconds are the sum of these numbers times the costs of the points. The curves are in the order
  // of Cost (devices/simulated.hpp). A call with a size between two points counts for both in part.
  std::vector<double> calls_at_points;

  std::uint64_t calls() const { return malloc_calls + free_calls + map_calls + unmap_calls; }
};

// Counters of one strategy, by name, in addition to the common statistics.
using Counters = std::vector<std::pair<std::string, std::uint64_t>>;

}  // namespace allocbench

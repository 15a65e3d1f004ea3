// calibration.cpp: the measured cost of each device call, by size.
// SPDX-License-Identifier: Apache-2.0
#include "calibration.hpp"

namespace allocbench {

CallCosts measure_calls(Device& device, Size size, std::size_t repeats) {
  CallCosts costs;
  auto const timed = [&](std::vector<double>& seconds, auto call) {
    double const before = device.stats().seconds;
    auto const result = call();
    if (result) seconds.push_back(device.stats().seconds - before);
    return result;
  };
  for (std::size_t n = 0; n < repeats; ++n) {
    Address const segment = timed(costs.malloc, [&] { return device.allocate(size, &costs); });
    if (segment == 0) return costs;
    timed(costs.free, [&] {
      device.free(segment);
      return true;
    });
  }
  if (size % device.granularity() != 0) return costs;
  Address const reservation = device.reserve(size, &costs);
  for (std::size_t n = 0; n < repeats && reservation != 0; ++n) {
    if (!timed(costs.map, [&] { return device.map(reservation, size, size); })) break;
    timed(costs.unmap, [&] {
      device.unmap(reservation, size, size);
      return true;
    });
  }
  if (reservation != 0) device.unreserve(reservation);
  return costs;
}

}  // namespace allocbench

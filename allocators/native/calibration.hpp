// calibration.hpp: what each call to a device costs, by size.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/device.hpp"

namespace allocbench {

// Seconds of each of the calls made, in order; empty where the device refused.
struct CallCosts {
  std::vector<double> malloc;
  std::vector<double> free;
  std::vector<double> map;  // of one page
  std::vector<double> unmap;
};

// Makes each call `repeats` times with one size in bytes, on a device that nothing else uses
// meanwhile. Pages are mapped only for a multiple of the device's granularity.
CallCosts measure_calls(Device& device, Size size, std::size_t repeats);

}  // namespace allocbench

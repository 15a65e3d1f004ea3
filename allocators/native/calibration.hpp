// calibration.hpp: the measured cost of each device call, by size.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/device.hpp"

namespace allocbench {

// The seconds of each successful call, in order.
struct CallCosts {
  std::vector<double> malloc;
  std::vector<double> free;
  std::vector<double> map;  // of one page
  std::vector<double> unmap;
};

// Makes each call `repeats` times with one size in bytes. Nothing else may use the device at the
// same time. Pages are mapped only if the size is a multiple of the device's granularity.
CallCosts measure_calls(Device& device, Size size, std::size_t repeats);

}  // namespace allocbench

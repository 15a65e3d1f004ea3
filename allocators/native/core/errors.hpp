// core/errors.hpp: the errors of allocators and devices.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace allocbench {

// A request cannot be served. The message contains the requested, reserved and free bytes.
struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// No allocated block begins at a freed address: it was never allocated, or was freed before.
struct BadFree : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// An invariant is broken because of a bug in the strategy. The message states the invariant.
struct InvariantViolation : std::logic_error {
  using std::logic_error::logic_error;
};

// An unknown strategy, option or device, or an option value that is out of range.
struct SpecError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// The device failed for a reason other than running out of memory. The message names the call and
// its error.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The strategy needs a feature that the device lacks. The message names the feature.
struct Unavailable : SpecError {
  using SpecError::SpecError;
};

inline void require(bool holds, char const* rule) {
  if (!holds) throw InvariantViolation(rule);
}

}  // namespace allocbench

// core/errors.hpp: the errors of allocators and devices.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace allocbench {

// A request that cannot be served. The message contains the bytes requested, reserved and free.
struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A free of an address that is not an allocated block: never handed out, or freed before.
struct BadFree : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A broken invariant: a bug in the strategy. The message states the rule that does not hold.
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

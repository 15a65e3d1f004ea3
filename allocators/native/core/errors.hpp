// core/errors.hpp: every way in which an allocator or a device says no.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>

namespace allocbench {

// A request that cannot be served; the message says what was asked, held and free.
struct OutOfMemory : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A free of an address that is not an allocated block: never handed out, or freed before.
struct BadFree : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A promise of the data structure is broken: a defect of the strategy, named by a phrase.
struct InvariantViolation : std::logic_error {
  using std::logic_error::logic_error;
};

// A strategy, option or device that does not exist, or a value out of its range.
struct SpecError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// The device fails otherwise than for lack of memory; the message says which call, and its error.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A strategy that needs what the device does not have; the message says what.
struct Unavailable : SpecError {
  using SpecError::SpecError;
};

inline void require(bool holds, char const* rule) {
  if (!holds) throw InvariantViolation(rule);
}

}  // namespace allocbench

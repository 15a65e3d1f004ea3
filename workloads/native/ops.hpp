// ops.hpp: the kinds of events that are counted here, as in allocbench/base/events.py.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace allocbench {

inline constexpr std::uint8_t kAlloc = 0, kFree = 1, kMark = 2;

}  // namespace allocbench

// core/text.hpp: parsing and formatting byte counts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/types.hpp"

namespace allocbench {

// "1.50 GiB (1610612736 bytes)"; below 1 KiB just the count.
std::string human_bytes(Size bytes);

// "4096", "8GiB", "1.5 MiB", "512KiB", "16G"; units are powers of 1024. Anything else, and any
// value of 2^63 or more, is rejected.
std::optional<Size> parse_bytes(std::string_view text);

// "0x7f0000200000"
std::string hex(Address address);

}  // namespace allocbench

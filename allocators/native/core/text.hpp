// core/text.hpp: parsing and formatting byte counts.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/types.hpp"

namespace allocbench {

// "1.50 GiB (1610612736 bytes)"; below 1 KiB only "512 bytes".
std::string human_bytes(Size bytes);

// The bytes in "4096", "8GiB", "1.5 MiB", "512KiB" or "16G"; units are powers of 1024. Empty for
// any other text and for values of 2^63 or more.
std::optional<Size> parse_bytes(std::string_view text);

// "0x7f0000200000"
std::string hex(Address address);

}  // namespace allocbench

// core/text.cpp: parsing and formatting byte counts.
// SPDX-License-Identifier: Apache-2.0
#include "core/text.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace allocbench {
namespace {

constexpr std::array<std::string_view, 5> kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};

// "KiB", "KB" and "K" all mean 1024, as they do for GPU vendors and the frameworks.
std::optional<Size> unit_of(std::string_view unit) {
  if (unit.empty() || unit == "B") return Size{1};
  std::string_view const prefixes = "KMGT";
  auto const index = prefixes.find(unit.front());
  if (index == std::string_view::npos) return std::nullopt;
  auto const rest = unit.substr(1);
  if (!rest.empty() && rest != "B" && rest != "iB") return std::nullopt;
  return Size{1} << (10 * (index + 1));
}

}  // namespace

std::string human_bytes(Size bytes) {
  std::size_t unit = 0;
  auto value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  std::string const exact = std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
  if (unit == 0) return exact;
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.2f %s (%s)", value, kUnits[unit].data(),
                exact.c_str());
  return text.data();
}

std::optional<Size> parse_bytes(std::string_view text) {
  double value = 0;
  auto const [rest, error] =
      std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc{}) return std::nullopt;
  auto unit = text.substr(static_cast<std::size_t>(rest - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  auto const scale = unit_of(unit);
  if (!scale) return std::nullopt;
  if (text.find('.') == std::string_view::npos) {  // a double is exact only up to 2^53
    Size whole = 0;
    auto const parsed = std::from_chars(text.data(), rest, whole);
    if (parsed.ec != std::errc{} || whole >= (Size{1} << 63) / *scale) return std::nullopt;
    return whole * *scale;
  }
  value *= static_cast<double>(*scale);
  if (!(value >= 0) || value >= 0x1p63) return std::nullopt;
  if (*scale == 1 && value != std::floor(value)) return std::nullopt;  // a fraction of a byte
  return static_cast<Size>(std::llround(value));
}

std::string hex(Address address) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(address));
  return text.data();
}

}  // namespace allocbench

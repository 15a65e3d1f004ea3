// strategies/caching/settings.cpp: the settings of PyTorch's allocator, by PyTorch's names.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/caching/settings.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace allocbench {
namespace {

// Versions with the rules of 2.9.
constexpr std::string_view kLike2_9[] = {"2.1", "2.2", "2.3", "2.4", "2.5",
                                         "2.6", "2.7", "2.8", "2.9"};

constexpr Size kOwnSegment = 10 * kMiB;  // from here on a request has a segment of its own

// Keys of a conf that change no placement: of pinned host memory, locks, captured graphs.
constexpr std::string_view kIgnored[] = {
    "backend",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "graph_capture_record_stream_reuse",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "pinned_num_register_threads",
    "pinned_use_background_threads",
    "pinned_reserve_segment_size_mb",
    "pinned_max_round_threshold_mb",
    "pinned_max_cached_size_mb",
    "pinned_free_catch_all",
};

// The parts of a list, cut at each comma outside of brackets; an empty last one is left out.
std::vector<std::string_view> parts(std::string_view list) {
  std::vector<std::string_view> found;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < list.size(); ++at) {
    depth += (list[at] == '[') - (list[at] == ']');
    if (list[at] != ',' || depth > 0) continue;
    found.push_back(list.substr(begin, at - begin));
    begin = at + 1;
  }
  if (begin < list.size()) found.push_back(list.substr(begin));
  return found;
}

std::pair<std::string_view, std::string_view> cut_at_colon(std::string_view text) {
  auto const colon = text.find(':');
  if (colon == std::string_view::npos) return {text, {}};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

std::string without_spaces(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\t' || c == '\n'; });
  return text;
}

// The options that a conf holds.
std::map<std::string, std::string> read_conf(Options const& given) {
  std::map<std::string, std::string> found;
  std::string const conf = without_spaces(given.text("conf"));
  for (auto const part : parts(conf)) {
    auto const [key, value] = cut_at_colon(part);
    if (key.empty() || value.empty())
      given.reject("conf", "must be key:value,key:value; '" + std::string(part) + "' is not");
    if (key == "conf" || key == "version")
      given.reject("conf", "must hold PyTorch's own settings; " + std::string(key) + " is none");
    if (key == "backend" && value != "native")
      given.reject("conf", "must not ask for a backend other than native");
    if (std::ranges::find(kIgnored, key) == std::end(kIgnored))
      found[std::string(key)] = std::string(value);
  }
  return found;
}

Size read_mebibytes(Options const& given, std::string_view name, Size least) {
  double const number = given.number(name);
  if (!(number == std::floor(number) && number >= static_cast<double>(least) && number <= 0x1p40))
    given.reject(name, "must be a whole number of at least " + std::to_string(least));
  return static_cast<Size>(number) * kMiB;
}

double read_share(Options const& given, std::string_view name, std::string_view rule,
                  bool (*holds)(double)) {
  double const share = given.number(name);
  if (!holds(share)) given.reject(name, rule);
  return share;
}

// The power of two that a text is.
std::optional<int> read_power(std::string_view text) {
  Size value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::has_single_bit(value))
    return std::nullopt;
  return std::countr_zero(value);
}

// A number for all sizes, or a list of interval:divisions. An interval is the power of two in MiB
// where it begins; the first one reaches down to 0, ">" stands for all above the one before it,
// and what no item names is not rounded to divisions. `overlap`: ">" includes the one before it.
std::array<Size, 16> read_divisions(Options const& given, bool overlap) {
  constexpr std::string_view name = "roundup_power2_divisions";
  std::string const text = without_spaces(given.text(name));
  auto const reject = [&] {
    given.reject(name, "must be a power of two, or a list like [256:1,512:2,1024:4,>:8]");
  };
  auto const power = [&](std::string_view number) {
    auto const found = read_power(number);
    if (!found) reject();
    return *found;
  };
  std::array<Size, 16> divisions = {};
  if (!text.starts_with('[')) {
    divisions.fill(Size{1} << power(text));
    return divisions;
  }
  if (!text.ends_with(']')) reject();
  std::string const list = text.substr(1, text.size() - 2);
  std::size_t last = 0;
  bool first = true;
  for (auto const part : parts(list)) {
    auto const [interval, number] = cut_at_colon(part);
    Size const value = number == "0" ? 0 : Size{1} << power(number);
    if (interval == ">") {
      std::fill(divisions.begin() + last + (overlap ? 0 : 1), divisions.end(), value);
      continue;
    }
    last = std::min<std::size_t>(static_cast<std::size_t>(power(interval)), divisions.size() - 1);
    if (first) std::fill(divisions.begin(), divisions.begin() + last, value);
    first = false;
    divisions[last] = value;
  }
  return divisions;
}

}  // namespace

CachingSettings CachingSettings::read(Options given, Size capacity) {
  if (given.given("conf")) given.give(read_conf(given));
  std::string const& version = given.text("version");
  bool const is_2_9 = std::ranges::find(kLike2_9, version) != std::end(kLike2_9);
  CachingSettings read;
  bool const is_2_10 = version == "2.10";
  if (is_2_9 || is_2_10 || version == "2.11")
    read.ties = Ties::kAddress;
  else if (version == "2.12")
    read.ties = Ties::kBlock;
  else if (version != "2.13")
    given.reject("version", "must be 2.1 to 2.13");

  read.large_segment = read_mebibytes(given, "large_segment_size_mb", kOwnSegment / kMiB + 1);
  if ((is_2_9 || is_2_10) && read.large_segment != kLargeSegment)
    given.reject("large_segment_size_mb", "must be 20 in version " + version);
  Size const least = read.large_segment / kMiB + (is_2_9 ? 1 : 0);
  if (given.given("max_split_size_mb"))
    read.max_split = read_mebibytes(given, "max_split_size_mb", least);
  read.max_non_split_rounding = given.given("max_non_split_rounding_mb")
                                    ? read_mebibytes(given, "max_non_split_rounding_mb", least)
                                    : read.large_segment;
  if (given.given("roundup_power2_divisions")) read.divisions = read_divisions(given, is_2_9);
  if (given.given("garbage_collection_threshold"))
    read.collection_threshold =
        read_share(given, "garbage_collection_threshold", "must lie between 0 and 1, both excluded",
                   [](double share) { return share > 0 && share < 1; });
  if (given.given("per_process_memory_fraction")) {
    double const share =
        read_share(given, "per_process_memory_fraction", "must lie between 0 and 1",
                   [](double fraction) { return fraction >= 0 && fraction <= 1; });
    if (share < 1 || is_2_9)  // later a share of 1 is no limit, which switches collection off
      read.limit = static_cast<Size>(share * static_cast<double>(capacity));
  }
  read.expandable = given.flag("expandable_segments");
  if (read.expandable && read.large_segment % kSegmentRounding != 0)
    given.reject("large_segment_size_mb", "must be even with expandable_segments");
  return read;
}

Size CachingSettings::rounded(Size requested) const {
  if (requested < kRounding) return kRounding;
  int const power = std::bit_width(requested) - 1;
  auto const interval = static_cast<std::size_t>(std::clamp(power - 20, 0, 15));
  Size const steps = divisions[interval];
  if (steps <= 1 || requested <= kRounding * steps) return round_up(requested, kRounding);
  return round_up(requested, (Size{1} << power) / steps);
}

Size CachingSettings::segment(Size rounded) const {
  if (rounded <= kSmall) return kSmallSegment;
  return rounded < kOwnSegment ? large_segment : round_up(rounded, kSegmentRounding);
}

}  // namespace allocbench

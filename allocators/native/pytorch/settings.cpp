// pytorch/settings.cpp: the settings of PyTorch's allocator, and the sizes that follow from them.
// SPDX-License-Identifier: Apache-2.0
#include "pytorch/settings.hpp"

#include <charconv>
#include <cmath>
#include <locale>
#include <sstream>
#include <string_view>

#include "core/errors.hpp"

namespace allocbench {
namespace {

constexpr Size kOwnSegment = 10 * kMiB;  // the smallest request that does not share its segment

// Keys of a conf that change no placement of a Python program, because they concern pinned host
// memory, locks, captured graphs or classes of streams.
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
    "expandable_segments_reserve_by_class",  // of streams that C++ code gives a class
};
constexpr std::string_view kReserve = "expandable_segments_reserve";

// Splits a list at each comma outside of brackets; an empty last item is dropped.
std::vector<std::string_view> split_list(std::string_view list) {
  std::vector<std::string_view> items;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t position = 0; position < list.size(); ++position) {
    depth += (list[position] == '[') - (list[position] == ']');
    if (list[position] != ',' || depth > 0) continue;
    items.push_back(list.substr(begin, position - begin));
    begin = position + 1;
  }
  if (begin < list.size()) items.push_back(list.substr(begin));
  return items;
}

std::pair<std::string_view, std::string_view> split_at_colon(std::string_view text) {
  auto const colon = text.find(':');
  if (colon == std::string_view::npos) return {text, {}};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

std::string without_spaces(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\t' || c == '\n'; });
  return text;
}

// Addresses of an expandable segment: what the text states, at most the device and an eighth.
// nullopt for a text that PyTorch ignores.
std::optional<Size> read_reserve(std::string text, Size capacity) {
  bool const gibibytes = text.ends_with('G') || text.ends_with('g');
  if (gibibytes) text.pop_back();
  std::istringstream number(text);
  number.imbue(std::locale::classic());
  double value = 0;
  if (!(number >> value) || !number.eof() || !(value > 0)) return std::nullopt;
  Size const most = PytorchSettings::most_reserved(capacity);
  double const bytes = value * static_cast<double>(gibibytes ? kGiB : capacity);
  return bytes < static_cast<double>(most) ? static_cast<Size>(bytes) : most;
}

// The options in a conf that can change placements, by name.
std::map<std::string, std::string> read_conf(Options const& given) {
  std::map<std::string, std::string> settings;
  for (auto const& [key, value] : split_conf(given.text("conf"))) {
    if (key.empty() || value.empty())
      given.reject("conf", "must be key:value,key:value; " +
                               (key.empty() ? "the value '" + value + "' has no key"
                                            : "'" + key + "' has no value"));
    if (key == "conf" || key == "version")
      given.reject("conf",
                   "must contain only settings of PyTorch; PyTorch has no setting '" + key + "'");
    if (key == "backend" && value != "native")
      given.reject("conf", "must not select a backend other than native");
    if (key == kReserve && !read_reserve(value, 0)) continue;
    if (std::ranges::find(kIgnored, key) == std::end(kIgnored)) settings[key] = value;
  }
  return settings;
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

bool is_fraction(double share) { return share >= 0 && share <= 1; }

// The exponent of the power of two that a text states; nullopt for any other text.
std::optional<int> read_exponent(std::string_view text) {
  Size value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::has_single_bit(value))
    return std::nullopt;
  return std::countr_zero(value);
}

// The divisions of each interval, from a number for all sizes or a list of interval:divisions. An
// interval is named by the power of two in MiB at which it begins. The first one reaches down to 0,
// ">" means all intervals above the previous one, and intervals that are not listed have no
// divisions. With `overlap`, ">" includes the previous interval.
std::array<Size, 16> read_divisions(Options const& given, bool overlap) {
  constexpr std::string_view name = "roundup_power2_divisions";
  std::string const text = without_spaces(given.text(name));
  auto const reject = [&] {
    given.reject(name, "must be a power of two, or a list like [256:1,512:2,1024:4,>:8]");
  };
  auto const exponent_of = [&](std::string_view number) {
    auto const exponent = read_exponent(number);
    if (!exponent) reject();
    return *exponent;
  };
  std::array<Size, 16> divisions = {};
  if (!text.starts_with('[')) {
    divisions.fill(Size{1} << exponent_of(text));
    return divisions;
  }
  if (!text.ends_with(']')) reject();
  std::string const list = text.substr(1, text.size() - 2);
  std::size_t index = 0;
  bool first = true;
  for (auto const item : split_list(list)) {
    auto const [interval, number] = split_at_colon(item);
    Size const count = number == "0" ? 0 : Size{1} << exponent_of(number);
    if (interval == ">") {
      std::fill(divisions.begin() + index + (overlap ? 0 : 1), divisions.end(), count);
      continue;
    }
    index = std::min<std::size_t>(static_cast<std::size_t>(exponent_of(interval)),
                                  divisions.size() - 1);
    if (first) std::fill(divisions.begin(), divisions.begin() + index, count);
    first = false;
    divisions[index] = count;
  }
  return divisions;
}

PytorchRules read_rules(Options const& given) {
  std::string const& version = given.text("version");
  auto const rules = PytorchRules::of(version);
  if (!rules || rules->version() != version)
    given.reject("version", "must be " + PytorchRules{PytorchRules::kOldest}.version() + " to " +
                                PytorchRules{PytorchRules::kNewest}.version());
  return *rules;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> split_conf(std::string conf) {
  std::vector<std::pair<std::string, std::string>> settings;
  conf = without_spaces(std::move(conf));
  for (auto const item : split_list(conf)) settings.emplace_back(split_at_colon(item));
  return settings;
}

PytorchSettings PytorchSettings::read(Options given, Capacity const& capacity) {
  if (given.given("conf")) given.give(read_conf(given));
  PytorchSettings settings;
  PytorchRules const rules = settings.rules = read_rules(given);
  settings.large_segment = read_mebibytes(given, "large_segment_size_mb", kOwnSegment / kMiB + 1);
  if (!rules.sets_large_segment && settings.large_segment != kLargeSegment)
    given.reject("large_segment_size_mb", "must be 20 in version " + rules.version());
  Size const least = settings.large_segment / kMiB + (rules.splits_segments ? 0 : 1);
  if (given.given("max_split_size_mb"))
    settings.max_split = read_mebibytes(given, "max_split_size_mb", least);
  settings.max_non_split_rounding = given.given("max_non_split_rounding_mb")
                                        ? read_mebibytes(given, "max_non_split_rounding_mb", least)
                                        : settings.large_segment;
  if (given.given("roundup_power2_divisions"))
    settings.divisions = read_divisions(given, rules.intervals_overlap);
  if (given.given("garbage_collection_threshold"))
    settings.collection_threshold =
        read_share(given, "garbage_collection_threshold", "must be greater than 0 and less than 1",
                   [](double share) { return share > 0 && share < 1; });
  if (given.given("per_process_memory_fraction"))
    settings.limit_to(
        read_share(given, "per_process_memory_fraction", "must be from 0 to 1", is_fraction),
        capacity());
  settings.expandable = given.flag("expandable_segments");
  if (settings.expandable && settings.large_segment % kSegmentRounding != 0)
    given.reject("large_segment_size_mb", "must be even with expandable_segments");
  if (given.given(kReserve)) settings.reserve = read_reserve(given.text(kReserve), capacity());
  settings.throws_early = given.flag("throw_on_cudamalloc_oom");
  settings.lasting = given.written({"version"});
  for (auto const& [name, _] : rules.lasting()) settings.lasting.merge(given.written({name}));
  return settings;
}

// PyTorch takes a memory fraction from a conf only when it creates the allocator of a device.
PytorchSettings PytorchSettings::changed(std::string const& conf, Capacity const& capacity) const {
  auto named = read_conf(Options("caching", options, {{"conf", conf}}));
  for (auto const& [name, value] : lasting) named.emplace(name, value);
  PytorchSettings settings = read(Options("caching", options, named), capacity);
  settings.limit = limit;
  return settings;
}

void PytorchSettings::limit_to(double fraction, Size capacity) {
  if (!is_fraction(fraction))
    throw SpecError("caching: a memory fraction of " + std::to_string(fraction) +
                    " must be from 0 to 1");
  limit.reset();
  if (fraction < 1 || rules.limits_by_all)
    limit = static_cast<Size>(fraction * static_cast<double>(capacity));
}

Size PytorchSettings::segment(Size rounded) const {
  if (rounded <= kSmall) return kSmallSegment;
  return rounded < kOwnSegment ? large_segment : round_up(rounded, kSegmentRounding);
}

}  // namespace allocbench

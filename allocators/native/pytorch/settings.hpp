// pytorch/settings.hpp: the settings of PyTorch's allocator, and the sizes that follow from them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/options.hpp"
#include "pytorch/versions.hpp"

namespace allocbench {

struct PytorchSettings {
  static constexpr Option options[] = {
      PytorchRules::kOption,
      {"conf", OptionType::kText, "",
       "the value of PYTORCH_ALLOC_CONF, verbatim: "
       "conf=max_split_size_mb:128,expandable_segments:True"},
      {"max_split_size_mb", OptionType::kNumber, "",
       "blocks of this size or larger are never split and never serve smaller requests; "
       "default: no limit"},
      {"max_non_split_rounding_mb", OptionType::kNumber, "",
       "how much larger than the request an unsplit block may be; default: large_segment_size_mb"},
      {"large_segment_size_mb", OptionType::kNumber, "20",
       "size of the segments that requests above 1 MiB and below 10 MiB share"},
      {"roundup_power2_divisions", OptionType::kText, "",
       "round up to one of this many sizes per power of two; by interval in MiB: "
       "[256:1,512:2,1024:4,>:8]; default: round up to 512 bytes"},
      {"garbage_collection_threshold", OptionType::kNumber, "",
       "fraction of the memory limit, in (0, 1), above which the oldest unused segments are "
       "released; default: never; requires per_process_memory_fraction"},
      {"per_process_memory_fraction", OptionType::kNumber, "",
       "fraction of the device's capacity, from 0 to 1, that may be reserved; default: all"},
      {"throw_on_cudamalloc_oom", OptionType::kFlag, "false",
       "fail at once, without returning cached memory, if the device cannot serve a request; has "
       "no effect with a memory fraction below 1"},
      {"expandable_segments", OptionType::kFlag, "false",
       "use segments of virtual memory that grow and shrink page by page"},
      {"expandable_segments_reserve", OptionType::kText, "",
       "addresses of an expandable segment, which no request can exceed: a fraction of the "
       "device's capacity, or GiB with the suffix G; at most and by default 1.125; as in PyTorch, "
       "a value that cannot be read is ignored"},
  };

  static constexpr Size kNoLimit = std::numeric_limits<Size>::max();
  static constexpr Size kRounding = 512;
  static constexpr Size kSmall = kMiB;  // the largest request to the small pool
  static constexpr Size kSmallSegment = 2 * kMiB;
  static constexpr Size kLargeSegment = 20 * kMiB;
  static constexpr Size kSegmentRounding = 2 * kMiB;

  // Bytes of the device; called only if a setting depends on it.
  using Capacity = std::function<Size()>;
  // Throws SpecError for a value out of range and for a conf that cannot be read.
  static PytorchSettings read(Options given, Capacity const& capacity);
  // The settings after a running program has PyTorch read `conf`: those that it does not name are
  // reset to their defaults, except for the lasting ones. Throws like `read`.
  PytorchSettings changed(std::string const& conf, Capacity const& capacity) const;
  // Sets the limit to a fraction of the capacity. Throws SpecError for one that is not from 0 to 1.
  void limit_to(double fraction, Size capacity);

  // Bytes allocated for a request; a block that is not split can be larger.
  Size rounded(Size requested) const;
  // Bytes requested from the device for a rounded size.
  Size segment(Size rounded) const;
  // Bytes mapped at a time in an expandable segment.
  Size page(bool small) const { return small ? kSmallSegment : large_segment; }
  // Addresses of an expandable segment in the pool of small or large blocks.
  Size reservation(bool small, Size capacity) const {
    return round_up(reserve.value_or(most_reserved(capacity)), page(small));
  }
  static Size most_reserved(Size capacity) { return capacity + capacity / 8; }
  // The smallest capacity from which an expandable segment with such pages has these addresses,
  // unless `reserve` is set.
  static Size capacity_with(Size addresses, Size page) {
    Size const least = round_down(addresses - 1, page) + 1;
    return least - least / 9;
  }
  bool collects() const { return limit && collection_threshold > 0; }

  PytorchRules rules;
  Size max_split = kNoLimit;
  Size max_non_split_rounding = 0;
  Size large_segment = 0;
  std::array<Size, 16> divisions = {};  // by the power of two of the size in MiB; 0: no divisions
  double collection_threshold = 0;
  std::optional<Size> limit;  // bytes that may be reserved
  bool expandable = false;
  std::optional<Size> reserve;  // addresses of an expandable segment, if they were set
  bool throws_early =
      false;  // instead of requesting memory that the device lacks, if no limit is set
  // Options as they were given that PyTorch does not reset when it reads settings again.
  std::map<std::string, std::string> lasting;
};

// The settings in a value of PYTORCH_ALLOC_CONF, as it writes them, in order; for an item without a
// colon, the item and an empty value.
std::vector<std::pair<std::string, std::string>> split_conf(std::string conf);

inline Size PytorchSettings::rounded(Size requested) const {
  if (requested < kRounding) return kRounding;
  int const exponent = std::bit_width(requested) - 1;
  auto const interval = static_cast<std::size_t>(std::clamp(exponent - 20, 0, 15));
  Size const count = divisions[interval];
  if (count <= 1 || requested <= kRounding * count) return round_up(requested, kRounding);
  return round_up(requested, (Size{1} << exponent) / count);
}

}  // namespace allocbench

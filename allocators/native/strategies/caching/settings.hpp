// strategies/caching/settings.hpp: the settings of PyTorch's allocator, by PyTorch's names.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <limits>
#include <optional>

#include "core/options.hpp"
#include "core/types.hpp"

namespace allocbench {

struct CachingSettings {
  static constexpr Option options[] = {
      {"version", OptionType::kText, "2.13",
       "PyTorch version to follow: 2.1 to 2.13; they differ in ties between free blocks of equal "
       "size, in a memory fraction of 1, and in the end of a list of divisions"},
      {"conf", OptionType::kText, "",
       "the value of PYTORCH_ALLOC_CONF, verbatim: "
       "conf=max_split_size_mb:128,expandable_segments:True"},
      {"max_split_size_mb", OptionType::kNumber, "",
       "blocks of this size or larger are never split, nor given to smaller requests; "
       "default: no limit"},
      {"max_non_split_rounding_mb", OptionType::kNumber, "",
       "how much larger than the request an unsplit block may be; default: large_segment_size_mb"},
      {"large_segment_size_mb", OptionType::kNumber, "20",
       "size of the segments that requests above 1 MiB and below 10 MiB share"},
      {"roundup_power2_divisions", OptionType::kText, "",
       "number of sizes between two powers of two to round up to; or by interval in MiB: "
       "[256:1,512:2,1024:4,>:8]; default: round to 512 bytes"},
      {"garbage_collection_threshold", OptionType::kNumber, "",
       "fraction of the memory limit, in (0, 1), above which the oldest unused segments are given "
       "back; default: never; needs per_process_memory_fraction"},
      {"per_process_memory_fraction", OptionType::kNumber, "",
       "fraction of the device's capacity, from 0 to 1, that may be reserved; default: all"},
      {"expandable_segments", OptionType::kFlag, "false",
       "use segments of virtual memory that grow and shrink page by page"},
  };

  static constexpr Size kNoLimit = std::numeric_limits<Size>::max();
  static constexpr Size kRounding = 512;
  static constexpr Size kSmall = kMiB;  // the largest request to the small pool
  static constexpr Size kSmallSegment = 2 * kMiB;
  static constexpr Size kLargeSegment = 20 * kMiB;
  static constexpr Size kSegmentRounding = 2 * kMiB;

  // What comes first among free blocks of equal size, before the lowest address.
  enum class Ties {
    kAddress,  // nothing
    kBlock,    // the block that was made first, by splitting or from the device
    kSegment,  // the segment that was obtained first
  };

  // Throws SpecError for a value out of range and for a conf that cannot be read.
  static CachingSettings read(Options given, Size capacity);

  // Bytes allocated to a request, before the rest of a block that is not split.
  Size rounded(Size requested) const;
  // Bytes asked from the device for a rounded size.
  Size segment(Size rounded) const;
  // Bytes mapped at a time in an expandable segment.
  Size page(bool small) const { return small ? kSmallSegment : large_segment; }
  bool collects() const { return limit && collection_threshold > 0; }

  Ties ties = Ties::kSegment;
  Size max_split = kNoLimit;
  Size max_non_split_rounding = 0;
  Size large_segment = 0;
  std::array<Size, 16> divisions = {};  // by the power of two of the size in MiB; 0: none
  double collection_threshold = 0;
  std::optional<Size> limit;  // bytes that may be reserved
  bool expandable = false;
};

}  // namespace allocbench

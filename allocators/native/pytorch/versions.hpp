// pytorch/versions.hpp: what differs between the versions of PyTorch's CUDACachingAllocator. No
// other file decides anything by the number of a version.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/options.hpp"

namespace allocbench {

// The rules of PyTorch 2.`minor`.
struct PytorchRules {
  static constexpr int kOldest = 1, kNewest = 15;
  // Whose rules stand for all versions whose recordings do not name the pools of blocks.
  static constexpr int kWithoutPools = 11;
  // The newest version whose memory snapshots do not contain the settings.
  static constexpr int kWithoutSettings = 3;
  static constexpr Option kOption = {
      "version", OptionType::kText, "2.13",
      "PyTorch version to follow, 2.1 to 2.15; the versions differ in the choice among free "
      "blocks of equal size, in the meaning of a memory fraction of 1, and in the last interval "
      "of a list of divisions"};

  // Which of several free blocks of equal size is used; among equals, the lowest address.
  enum class Ties {
    kAddress,  // the block at the lowest address
    kBlock,    // the block that was created first, by a split or by a device call
    kSegment,  // a block of the segment that was obtained first
  };

  int minor = 13;
  Ties ties = minor < 12 ? Ties::kAddress : minor < 13 ? Ties::kBlock : Ties::kSegment;
  bool intervals_overlap = minor < 10;    // ">" in a list of divisions includes the interval before
  bool limits_by_all = minor < 10;        // a memory fraction of 1 is a limit
  bool splits_segments = minor >= 10;     // max_split_size_mb may equal large_segment_size_mb
  bool lends_expandable = minor < 10;     // a MemPool with use_on_oom lends expandable segments
  bool knows_no_split = minor >= 10;      // of a MemPool
  bool sets_large_segment = minor >= 11;  // large_segment_size_mb is a setting
  bool resets_rounding = minor >= 11;     // max_non_split_rounding_mb, with the other settings
  bool lends_first = minor >= 11;         // before memory is returned to the device, not after
  bool marks_captures = minor >= 13;      // entering a MemPool is no capture
  bool names_pools = minor >= 13;         // in each event of a memory snapshot
  // A MemPool's own allocator is used with expandable_segments, too: 2.5 takes expandable segments
  // in its place, 2.9 raises an error, and 2.10 was not tried (pytorch/pytorch#147851).
  bool allocates_from_pools = minor >= 11;
  // Where settings are read. 2.9 reads both variables, but takes expandable_segments from the first
  // alone (pytorch/pytorch#183387).
  std::string_view variable = minor < 10 ? "PYTORCH_CUDA_ALLOC_CONF" : "PYTORCH_ALLOC_CONF";

  // Those of a version as PyTorch writes it ("2.9.1+cu128"), of the newest known one for later
  // versions; nullopt for earlier ones and for other texts.
  static std::optional<PytorchRules> of(std::string_view version);
  // Those that differ, the oldest first: of the default version or the newest with the same rules.
  static std::vector<PytorchRules> sets();

  std::string version() const { return "2." + std::to_string(minor); }
  // The oldest version with these rules.
  std::string since() const {
    PytorchRules const before{minor - 1};
    return minor > kOldest && same_as(before) ? before.since() : version();
  }
  bool same_as(PytorchRules other) const {
    other.minor = minor;
    return *this == other;
  }
  friend bool operator==(PytorchRules const&, PytorchRules const&) = default;

  // The settings that stay when a program has PyTorch read others that do not name them, and the
  // values that restore their defaults; "" where the version accepts no such value.
  std::map<std::string, std::string> lasting() const;
};

inline std::optional<PytorchRules> PytorchRules::of(std::string_view version) {
  int major = 0, minor = 0;
  char const* const end = version.data() + version.size();
  auto const [dot, no_major] = std::from_chars(version.data(), end, major);
  if (no_major != std::errc{} || dot == end || *dot != '.') return std::nullopt;
  if (std::from_chars(dot + 1, end, minor).ec != std::errc{}) return std::nullopt;
  if (major > 2) return PytorchRules{kNewest};
  if (major < 2 || minor < kOldest) return std::nullopt;
  return PytorchRules{std::min(minor, kNewest)};
}

inline std::vector<PytorchRules> PytorchRules::sets() {
  std::vector<PytorchRules> sets;
  for (int minor = kOldest; minor <= kNewest; ++minor) {
    PytorchRules const rules{minor};
    if (sets.empty() || !rules.same_as(sets.back()))
      sets.push_back(rules);
    else if (sets.back() != PytorchRules())
      sets.back() = rules;
  }
  return sets;
}

inline std::map<std::string, std::string> PytorchRules::lasting() const {
  std::map<std::string, std::string> settings = {{"expandable_segments", "False"},
                                                 {"expandable_segments_reserve", "1.125"},
                                                 {"large_segment_size_mb", "20"},
                                                 {"throw_on_cudamalloc_oom", "False"}};
  if (!resets_rounding) settings["max_non_split_rounding_mb"] = splits_segments ? "20" : "";
  return settings;
}

}  // namespace allocbench

// strategies/bfc/log.cpp: a text dump of the memory for an out-of-memory message.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/bfc/log.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

#include "core/text.hpp"

namespace allocbench {
namespace {

constexpr Size kSmallest = 256;  // bytes of the smallest chunk
// A bin has chunks of at least 256 << bin bytes; the last one has no upper bound.
constexpr std::size_t kBins = 21;
constexpr Size kParts = 64;           // in each row of the map
constexpr std::size_t kRegions = 64;  // shown in the map

std::size_t bin_of(Size size) {
  auto const bin = static_cast<std::size_t>(std::bit_width(std::max(size / kSmallest, Size{1})));
  return std::min(bin, kBins) - 1;
}

struct Tally {
  std::uint64_t chunks = 0, in_use = 0;
  Size bytes = 0, bytes_in_use = 0, requested = 0, largest_free = 0;

  void add(Block const& chunk) {
    ++chunks;
    bytes += chunk.size;
    if (chunk.allocated()) {
      ++in_use;
      bytes_in_use += chunk.size;
      requested += chunk.requested;
    } else {
      largest_free = std::max(largest_free, chunk.size);
    }
  }
};

std::string line(std::size_t bin, Tally const& tally) {
  return "  bin " + std::to_string(bin) + " (from " + human_bytes(kSmallest << bin) +
         "): " + std::to_string(tally.chunks) + " chunks, " + std::to_string(tally.in_use) +
         " in use; " + human_bytes(tally.bytes) + ", in use " + human_bytes(tally.bytes_in_use) +
         " for requests of " + human_bytes(tally.requested) + "\n";
}

char fullness(Size used, Size size) {
  if (used == 0) return '.';
  if (used == size) return '#';
  return static_cast<char>(
      '0' + static_cast<int>(10.0 * static_cast<double>(used) / static_cast<double>(size)));
}

// A row of the map. All parts are of equal size, because a region is a multiple of 256 bytes.
std::string row(Segment const& region) {
  Size const parts = std::min(region.size / kSmallest, kParts);
  Size const width = region.size / parts;
  std::vector<Size> used(parts);
  for (Block const& chunk : region.blocks) {
    if (!chunk.allocated()) continue;
    Size const first = chunk.address - region.address, last = first + chunk.size;
    for (Size part = first / width; part * width < last; ++part)
      used[part] += std::min(last, (part + 1) * width) - std::max(first, part * width);
  }
  std::string text;
  for (Size const bytes : used) text += fullness(bytes, width);
  return text;
}

}  // namespace

std::string memory_log(std::vector<Segment> const& regions, Size peak_in_use, Size memory_limit) {
  std::array<Tally, kBins> bins;
  Tally all;
  for (Segment const& region : regions)
    for (Block const& chunk : region.blocks) {
      bins[bin_of(chunk.size)].add(chunk);
      all.add(chunk);
    }
  std::string text;
  for (std::size_t bin = 0; bin < kBins; ++bin)
    if (bins[bin].chunks > 0) text += line(bin, bins[bin]);
  text += "  total: in use " + human_bytes(all.bytes_in_use) + ", peak " +
          human_bytes(peak_in_use) + "; free " + human_bytes(all.bytes - all.bytes_in_use) +
          ", largest free chunk " + human_bytes(all.largest_free) + "; memory limit " +
          human_bytes(memory_limit) + "; regions " + std::to_string(regions.size());
  if (regions.empty()) return text;
  text += "\n  map (. free, # in use, digit: tenths in use):";
  for (std::size_t region = 0; region < std::min(kRegions, regions.size()); ++region)
    text += "\n  " + hex(regions[region].address) + " " + row(regions[region]) + " " +
            human_bytes(regions[region].size);
  if (regions.size() > kRegions)
    text += "\n  and " + std::to_string(regions.size() - kRegions) + " more regions";
  return text;
}

}  // namespace allocbench

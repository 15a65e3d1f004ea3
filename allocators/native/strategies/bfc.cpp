// strategies/bfc.cpp: TensorFlow's best fit with coalescing.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/bfc.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace allocbench {
namespace {

constexpr Size kDefaultLargestWaste = 128 * kMiB;
constexpr Size kRegionAfterShrinking = 2 * kMiB;
constexpr Size kNoLimit = Size{1} << 62;  // more than any device has
constexpr double kLongestRetry = 86400;

Size memory_limit(Size capacity, BfcPreset const& preset, Options const& given) {
  if (given.given("memory_limit") && given.given("per_process_memory_fraction"))
    given.reject("memory_limit", "cannot be combined with per_process_memory_fraction");
  if (given.given("memory_limit")) {
    if (given.bytes("memory_limit") < Bfc::kRounding)
      given.reject("memory_limit", "must be at least 256 bytes");
    return given.bytes("memory_limit");
  }
  if (given.given("per_process_memory_fraction")) {
    double const fraction = given.number("per_process_memory_fraction");
    if (!(fraction > 0 && fraction <= 1))
      given.reject("per_process_memory_fraction", "must be greater than 0 and at most 1");
    return static_cast<Size>(static_cast<double>(capacity) * fraction);
  }
  if (!given.flag("system_reserve")) {
    if (preset.fraction == 0) return kNoLimit;
    return static_cast<Size>(static_cast<double>(capacity) * preset.fraction);
  }
  Size const reserve =
      capacity < 2 * kGiB
          ? 225 * kMiB
          : std::max(300 * kMiB, static_cast<Size>(0.05 * static_cast<double>(capacity)));
  return reserve < capacity ? capacity - reserve : capacity;
}

// The next size to request after the device refused `size` bytes. TensorFlow computes in float32.
Size reduced(Size size) {
  return round_up(static_cast<Size>(static_cast<float>(size) * 0.9f), Bfc::kRounding);
}

bool extends_as_requested(Options const& given) {
  std::string const& extend = given.text("extend");
  if (extend != "doubling" && extend != "requested")
    given.reject("extend", "must be doubling or requested");
  return extend == "requested";
}

Size region_size(Options const& given, std::string_view name, Size fallback) {
  if (!given.given(name)) return fallback;
  if (given.bytes(name) < Bfc::kRounding) given.reject(name, "must be at least 256 bytes");
  return round_up(given.bytes(name), Bfc::kRounding);
}

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

// A text of three parts, with each line indented by two spaces: the chunks by bin; the totals in
// bytes; and a map with a row for each region. A row divides its region into at most 64 equal
// parts:
// '.' is free, '#' is fully in use, and a digit counts the tenths in use. Regions after the first
// 64 are only counted.
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

}  // namespace

Bfc::Bfc(Device& device, Options const& given)
    : Allocator(device),
      preset_(bfc_preset(given)),
      memory_limit_(memory_limit(device.capacity(), preset_, given)),
      largest_region_(region_size(given, "largest_region", preset_.largest_region)),
      garbage_collection_(given.flag("garbage_collection")),
      coalesce_regions_(given.flag("coalesce_regions")),
      timestamped_frees_(given.flag("timestamped_frees")),
      extend_as_requested_(extends_as_requested(given)),
      shrink_(given.flag("shrink")) {
  double const seconds = given.number("retry_seconds");
  if (!(seconds >= 0 && seconds <= kLongestRetry))
    given.reject("retry_seconds", "must be from 0 to 86400");
  bool const grows =
      given.given("allow_growth") ? given.flag("allow_growth") : preset_.allow_growth;
  Size const first = region_size(given, "first_region", preset_.first_region);
  next_region_ = round_up(grows ? std::min(memory_limit_, first) : memory_limit_, kRounding);
  if (largest_region_ != 0 && largest_region_ < first)
    given.reject("largest_region", "must not be smaller than first_region");
  double const fraction = given.number("fragmentation_fraction");
  if (!(fraction >= 0 && fraction <= 1))
    given.reject("fragmentation_fraction", "must be from 0 to 1");
  largest_waste_ = fraction > 0 ? static_cast<Size>(fraction * static_cast<double>(memory_limit_))
                                : kDefaultLargestWaste;
}

Block Bfc::do_allocate(Size requested, Stream) {
  Size const rounded = round_up(requested, kRounding);
  timestamps_.merge();
  Index chunk = chunks_.find(rounded);
  if (chunk == kNone && extend(rounded)) chunk = chunks_.find(rounded);
  if (chunk == kNone && collect(rounded)) {
    count_retry();
    if (extend(rounded)) chunk = chunks_.find(rounded);
  }
  for (; chunk == kNone && timestamps_.advance(); ++early_) {
    timestamps_.merge();
    chunk = chunks_.find(rounded);
  }
  if (chunk == kNone) return {};
  Size const size = chunks_.block(chunk).size;
  bool const split = size >= 2 * rounded || size - rounded >= largest_waste_;
  return chunks_.allocate(chunk, split ? rounded : size, requested);
}

void Bfc::do_step() {
  timestamps_.advance_to_last();
  if (!shrink_) return;
  timestamps_.merge();
  release_idle(extend_as_requested_ ? 0 : first_region_);
  next_region_ = kRegionAfterShrinking;
}

void Bfc::do_trim() {
  timestamps_.advance_to_last();
  timestamps_.merge();
  release_idle();
}

bool Bfc::adopt(std::vector<HeldSegment> const& layout) {
  return take_over(layout, [&] {
    return std::ranges::all_of(layout, &HeldSegment::of_bfc) &&
           std::ranges::all_of(layout,
                               [&](HeldSegment const& held) { return adopt_region(held.segment); });
  });
}

// The blocks of `region` are the chunks in use.
bool Bfc::adopt_region(Segment const& region) {
  if (!device().adopt(region.address, region.size, this)) return false;
  count_reserved(region.size);
  if (first_region_ == 0) first_region_ = region.address;
  double_next_region();
  chunks_.carve(chunks_.add(region.address, region.size), region.blocks);
  return true;
}

// Obtains another region of at least `rounded` bytes; false if that is not possible.
bool Bfc::extend(Size rounded) {
  Size const room = round_down(memory_limit_ - reserved(), kRounding);
  if (rounded > room) return false;
  bool const already_doubled = rounded > next_region_;
  while (rounded > next_region_) next_region_ *= 2;
  Size size = extend_as_requested_ ? rounded : std::min(next_region_, room);
  if (!already_doubled && preset_.doubles_when_refused) double_next_region();
  Address region = acquire(size);
  while (region == 0) {
    Size const smaller = reduced(size);
    if (smaller < rounded || smaller == size || smaller < preset_.smallest_retry) return false;
    size = smaller;
    region = acquire(size);
  }
  if (!already_doubled && !preset_.doubles_when_refused) double_next_region();
  if (first_region_ == 0) first_region_ = region;
  chunks_.add(region, size, coalesce_regions_);
  return true;
}

void Bfc::double_next_region() {
  // Beyond the limit, further doubling changes nothing and would eventually overflow.
  if (next_region_ < memory_limit_) next_region_ *= 2;
  if (largest_region_ != 0) next_region_ = std::min(next_region_, largest_region_);
}

// Returns all regions without a chunk in use if that makes room for `rounded` bytes.
bool Bfc::collect(Size rounded) {
  if (!garbage_collection_) return false;
  Size const room = memory_limit_ - reserved() + chunks_.idle_bytes();
  return rounded <= room && release_idle();
}

// Returns all regions without a chunk in use, except for the one at `kept`.
bool Bfc::release_idle(Address kept) {
  if (!returns_memory()) return false;
  bool const any =
      chunks_.release_idle([this](Address region, Size size) { release(region, size); }, kept);
  if (any) timestamps_.forget();
  return any;
}

Size Bfc::do_largest_free() const {
  return std::max(chunks_.largest_free(), timestamps_.largest());
}

Counters Bfc::do_counters() const {
  Counters counters = {{"search_steps", chunks_.search_steps()}};
  if (timestamped_frees_)
    counters.insert(counters.end(),
                    {{"unsafe_chunks", timestamps_.unsafe()}, {"early_chunks", early_}});
  return counters;
}

void Bfc::do_check() const {
  chunks_.check();
  require(reserved() <= memory_limit_, "the regions together do not exceed the memory limit");
}

std::string Bfc::do_summary() const {
  return memory_log(chunks_.snapshot(), counted().allocated.peak, memory_limit_);
}

}  // namespace allocbench

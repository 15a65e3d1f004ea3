// strategies/bfc.hpp: TensorFlow's best fit with coalescing.
// SPDX-License-Identifier: Apache-2.0
//
// Sizes are rounded up to 256 bytes. A request takes the smallest free chunk that fits, at the
// lowest address among equals. The chunk is split if it is at least twice as large as needed or if
// the rest would reach a limit (128 MiB, or a fraction of the memory limit). A freed chunk
// coalesces with its free neighbors at once. If no chunk fits, a region is requested from the
// device: 2 MiB first, then twice as much each time, within the memory limit. A refused size is
// reduced by 10% (in float32) until it is granted or too small. With garbage collection, regions
// without a chunk in use are returned to the device before a request is refused. A request and a
// free take O(log n) time for n free chunks.
//
// With timestamped frees, every free gets the next count. A freed chunk is reused and coalesced
// only after the safe frontier has passed its count: the device has finished all work up to the
// frontier. Chunks become reusable in batches, when a request begins. The mark of a step moves the
// frontier past the last free. If no safe chunk fits and no region can be obtained, the request
// waits for the device: the frontier moves past one free after another until a large enough chunk
// has formed.
//
// JAX uses the same allocator with other defaults. ONNX Runtime derived its arena from it, with
// other sizes of regions, two ways to extend, and shrinkage; its streams are not modeled.
//
// Source: tsl/framework/bfc_allocator.cc of TensorFlow 2.21, reproduced chunk for chunk, including
// growth and timestamps, with these differences:
// - If the device keeps refusing a region of at most 2304 bytes, a fixed point of the reduction by
//   10%, TensorFlow retries forever; this strategy refuses the request.
// - In TensorFlow, a request can demand that its chunk be safe (`freed_by_func`); here all do.
// - TensorFlow also counts kernels; here the frontier always moves past the last free.
// - TensorFlow cannot collect regions whose chunks wait for their batch; this strategy can.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "core/abilities.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"
#include "parts/free_index.hpp"
#include "parts/segment_blocks.hpp"

namespace allocbench {

// A best-fit index that can also withhold free chunks, which may not be used or coalesced yet. A
// withheld chunk is in no bin.
class WithholdingIndex : public FreeIndex {
 public:
  using FreeIndex::FreeIndex;

  void withhold(Index chunk) {
    if (withheld_.size() <= chunk) withheld_.resize(chunk + 1);
    withheld_[chunk] = 1;
  }

  void admit(Index chunk) {
    withheld_[chunk] = 0;
    insert(chunk);
  }

  bool withholds(Index chunk) const { return chunk < withheld_.size() && withheld_[chunk] != 0; }
  // Adjacent chunks that were withheld together stay apart when they are admitted.
  bool leaves_neighbors() const { return !withheld_.empty(); }

  void remove(Index chunk) {
    if (withholds(chunk))
      withheld_[chunk] = 0;
    else
      FreeIndex::remove(chunk);
  }

  bool contains(Index chunk) const { return FreeIndex::contains(chunk) != withholds(chunk); }

 private:
  std::vector<std::uint8_t> withheld_;  // by chunk, 0 or 1; empty until `withhold` is used
};

class Chunks : public SegmentBlocks<WithholdingIndex> {
 public:
  // Frees the allocated chunk at `address`, but excludes it from coalescing and from `find` until
  // `admit`, which does not coalesce it either. Returns the chunk, or kNone.
  Index withhold(Address address) {
    Index const chunk = allocated_.erase(address);
    if (chunk == kNone) return kNone;
    nodes_[chunk].block.requested = 0;
    free_.withhold(chunk);
    return chunk;
  }

  void admit(Index chunk) { free_.admit(chunk); }

  // Coalesces a free chunk with at most one free neighbor on each side.
  void coalesce(Index chunk) {
    free_.remove(chunk);
    free_.insert(coalesced(chunk));
  }

  // Allocates blocks, in order of address, in the free chunk `rest`.
  void carve(Index rest, std::vector<Block> const& blocks) {
    std::vector<Address> gaps;
    for (Block const& block : blocks) {
      if (Address const begin = nodes_[rest].block.address; begin < block.address) {
        gaps.push_back(allocate(rest, block.address - begin, 1).address);
        rest = nodes_[rest].next;
      }
      allocate(rest, block.size, block.requested);
      rest = nodes_[rest].next;
    }
    for (Address const gap : gaps) deallocate(gap);
  }

  // True if a chunk that was free has been released or merged into a neighbor. Valid until its
  // index is reused.
  bool is_gone(Index chunk) const { return nodes_[chunk].block.size == 0; }
};

// Every free gets the next count. A chunk whose count is above the safe frontier is unsafe: it does
// not coalesce and serves no request. Chunks that the frontier has passed are freed in batches:
// each coalesces, in the order of the frees, with at most one neighbor on each side. So two free
// chunks can stay apart if a chunk between them is merged in the same batch. Each call takes
// O(1) expected time in addition to that of `Chunks`, except `largest` and `forget`, which take
// O(withheld chunks).
class Timestamps {
 public:
  explicit Timestamps(Chunks& chunks) : chunks_(chunks) {}

  // Returns the chunk as it was allocated, or one of size 0 if none is allocated at the address.
  Block free(Address address) {
    Block const chunk = chunks_.allocated(address);
    if (chunk.size != 0) withheld_.push_back(chunks_.withhold(address));
    return chunk;
  }

  // Moves the frontier past one more free; false if it has passed the last.
  bool advance() {
    if (passed_ == withheld_.size()) return false;
    ++passed_;
    return true;
  }

  void advance_to_last() { passed_ = withheld_.size(); }

  // Frees the batch of chunks that the frontier has passed.
  void merge() {
    if (passed_ > 0) [[unlikely]]
      merge_batch();
  }

  // Drops the chunks that no longer exist.
  void forget() {
    auto const gone = [&](Index chunk) { return chunks_.is_gone(chunk); };
    passed_ -= static_cast<std::size_t>(std::count_if(
        withheld_.begin(), withheld_.begin() + static_cast<std::ptrdiff_t>(passed_), gone));
    std::erase_if(withheld_, gone);
  }

  std::size_t unsafe() const { return withheld_.size() - passed_; }

  // Size of the largest chunk waiting for its batch, in bytes; 0 if there is none.
  Size largest() const {
    Size largest_size = 0;
    for (Index const chunk : withheld_)
      largest_size = std::max(largest_size, chunks_.block(chunk).size);
    return largest_size;
  }

 private:
  [[gnu::noinline]] void merge_batch() {
    auto const end = withheld_.begin() + static_cast<std::ptrdiff_t>(passed_);
    std::vector<Index> const batch(withheld_.begin(), end);
    withheld_.erase(withheld_.begin(), end);
    passed_ = 0;
    for (Index const chunk : batch) chunks_.admit(chunk);
    for (Index const chunk : batch)
      if (!chunks_.is_gone(chunk)) chunks_.coalesce(chunk);
  }

  Chunks& chunks_;
  std::deque<Index> withheld_;  // in the order of their counts
  std::size_t passed_ = 0;      // the number at the front that the frontier has passed
};

struct BfcPreset {
  std::string_view name;
  double fraction;  // of the capacity, as the memory limit; 0: no limit
  bool allow_growth;
  Size first_region;
  Size largest_region;        // 0: none
  Size smallest_retry;        // the device is not asked for less after it refused a region
  bool doubles_when_refused;  // the next region is larger even if the device refused this one
};

// Sources: TensorFlow 2.21; JAX's documentation of GPU memory allocation; OrtArenaCfg and bfc_arena
// of ONNX Runtime 1.31.
inline constexpr BfcPreset kBfcPresets[] = {
    {"tensorflow", 1.0, true, 2 * kMiB, 0, 0, false},
    {"jax", 0.75, false, 2 * kMiB, 0, 0, false},
    {"onnxruntime", 0.0, true, kMiB, kGiB, 8 * kKiB, true},
};

inline BfcPreset const& bfc_preset(Options const& given) {
  auto const preset = std::ranges::find(kBfcPresets, given.text("preset"), &BfcPreset::name);
  if (preset == std::end(kBfcPresets))
    given.reject("preset", "must be tensorflow, jax or onnxruntime");
  return *preset;
}

class Bfc : public Allocator, public TakesOver {
 public:
  static constexpr Size kRounding = 256;
  static constexpr Option options[] = {
      {"preset", OptionType::kText, "tensorflow",
       "whose defaults the other options have: tensorflow, jax or onnxruntime"},
      {"memory_limit", OptionType::kBytes, "",
       "the most bytes of all regions together; default: the capacity of the device (jax: 75 % of "
       "it; onnxruntime: no limit)"},
      {"per_process_memory_fraction", OptionType::kNumber, "",
       "the memory limit as a fraction of the capacity, above 0 and at most 1"},
      {"system_reserve", OptionType::kFlag, "false",
       "lower the default memory limit by the memory that TensorFlow reserves for the system: "
       "225 MiB on a device below 2 GiB, otherwise 5 % and at least 300 MiB"},
      {"allow_growth", OptionType::kFlag, "",
       "add regions as needed; false: one region of the whole memory limit; default: true (jax: "
       "false)"},
      {"extend", OptionType::kText, "doubling",
       "size of a new region: doubling, or requested (exactly the rounded request)"},
      {"first_region", OptionType::kBytes, "",
       "size at which doubling starts; default: 2 MiB (onnxruntime: 1 MiB)"},
      {"largest_region", OptionType::kBytes, "",
       "size at which doubling ends, unless a request is larger; default: none (onnxruntime: 1 "
       "GiB)"},
      {"shrink", OptionType::kFlag, "false",
       "at each step mark, return unused regions, except for the first one with extend=doubling "
       "(the arena shrinkage of ONNX Runtime)"},
      {"garbage_collection", OptionType::kFlag, "false",
       "return unused regions to the device before a request fails"},
      {"fragmentation_fraction", OptionType::kNumber, "0",
       "split a chunk if the remainder is at least this fraction of the memory limit; 0: at least "
       "128 MiB"},
      {"coalesce_regions", OptionType::kFlag, "false", "merge adjacent regions"},
      {"timestamped_frees", OptionType::kFlag, "false",
       "reuse a freed chunk only after the next step mark, or when memory runs out"},
      {"retry_seconds", OptionType::kNumber, "0",
       "seconds that a request waits for frees by other threads before it fails (TensorFlow: 10)"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "bfc",
      .summary = "best fit with coalescing, in regions of doubling size (TensorFlow)",
      .worst_case =
          "inside a chunk: half of it, at most 128 MiB; outside: free chunks that are too small",
      .reference = "BFCAllocator of TensorFlow and XLA",
      .options = options,
      .largest_request = [](Size capacity) { return round_down(capacity, kRounding); },
      .exemption = "sizes are rounded up to 256 bytes",
      .retry_option = "retry_seconds",
  };

  Bfc(Device& device, Options const& given)
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

  StrategyInfo const& info() const override { return strategy; }

  bool adopt(std::vector<HeldSegment> const& layout) override {
    return take_over(layout, [&] {
      return std::ranges::all_of(layout, &HeldSegment::of_bfc) &&
             std::ranges::all_of(
                 layout, [&](HeldSegment const& held) { return adopt_region(held.segment); });
    });
  }

 protected:
  [[gnu::flatten]] Block do_allocate(Size requested, Stream) override {
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

  [[gnu::flatten]] Block do_deallocate(Address address, Stream) override {
    return timestamped_frees_ ? timestamps_.free(address) : chunks_.deallocate(address);
  }

  void do_trim() override {
    timestamps_.advance_to_last();
    timestamps_.merge();
    release_idle();
  }

  void do_step() override {
    timestamps_.advance_to_last();
    if (!shrink_) return;
    timestamps_.merge();
    release_idle(extend_as_requested_ ? 0 : first_region_);
    next_region_ = kRegionAfterShrinking;
  }

  std::vector<Segment> do_snapshot() const override { return chunks_.snapshot(); }

  Size do_largest_free() const override {
    return std::max(chunks_.largest_free(), timestamps_.largest());
  }

  void do_check() const override {
    chunks_.check();
    require(reserved() <= memory_limit_, "the regions together do not exceed the memory limit");
  }

  Counters do_counters() const override {
    Counters counters = {{"search_steps", chunks_.search_steps()}};
    if (timestamped_frees_)
      counters.insert(counters.end(),
                      {{"unsafe_chunks", timestamps_.unsafe()}, {"early_chunks", early_}});
    return counters;
  }

  std::string do_summary() const override {
    return memory_log(chunks_.snapshot(), counted().allocated.peak, memory_limit_);
  }

  Size do_room() const override { return memory_limit_ - reserved(); }

 private:
  static constexpr Size kDefaultLargestWaste = 128 * kMiB;
  static constexpr Size kRegionAfterShrinking = 2 * kMiB;
  static constexpr Size kNoLimit = Size{1} << 62;  // more than any device has
  static constexpr double kLongestRetry = 86400;
  static Size memory_limit(Size capacity, BfcPreset const& preset, Options const& given) {
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
  static Size reduced(Size size) {
    return round_up(static_cast<Size>(static_cast<float>(size) * 0.9f), Bfc::kRounding);
  }

  static bool extends_as_requested(Options const& given) {
    std::string const& extend = given.text("extend");
    if (extend != "doubling" && extend != "requested")
      given.reject("extend", "must be doubling or requested");
    return extend == "requested";
  }

  static Size region_size(Options const& given, std::string_view name, Size fallback) {
    if (!given.given(name)) return fallback;
    if (given.bytes(name) < Bfc::kRounding) given.reject(name, "must be at least 256 bytes");
    return round_up(given.bytes(name), Bfc::kRounding);
  }

  static constexpr Size kSmallest = 256;  // bytes of the smallest chunk
  // A bin has chunks of at least 256 << bin bytes; the last one has no upper bound.
  static constexpr std::size_t kBins = 21;
  static constexpr Size kParts = 64;           // in each row of the map
  static constexpr std::size_t kRegions = 64;  // shown in the map
  static std::size_t bin_of(Size size) {
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
  static std::string line(std::size_t bin, Tally const& tally) {
    return "  bin " + std::to_string(bin) + " (from " + human_bytes(kSmallest << bin) +
           "): " + std::to_string(tally.chunks) + " chunks, " + std::to_string(tally.in_use) +
           " in use; " + human_bytes(tally.bytes) + ", in use " + human_bytes(tally.bytes_in_use) +
           " for requests of " + human_bytes(tally.requested) + "\n";
  }

  static char fullness(Size used, Size size) {
    if (used == 0) return '.';
    if (used == size) return '#';
    return static_cast<char>(
        '0' + static_cast<int>(10.0 * static_cast<double>(used) / static_cast<double>(size)));
  }

  // A row of the map. All parts are of equal size, because a region is a multiple of 256 bytes.
  static std::string row(Segment const& region) {
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
  static std::string memory_log(std::vector<Segment> const& regions, Size peak_in_use,
                                Size memory_limit) {
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

  // The blocks of `region` are the chunks in use.
  bool adopt_region(Segment const& region) {
    if (!device().adopt(region.address, region.size, this)) return false;
    count_reserved(region.size);
    if (first_region_ == 0) first_region_ = region.address;
    double_next_region();
    chunks_.carve(chunks_.add(region.address, region.size), region.blocks);
    return true;
  }

  // Obtains another region of at least `rounded` bytes; false if that is not possible.
  [[gnu::noinline]] bool extend(Size rounded) {
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

  void double_next_region() {
    // Beyond the limit, further doubling changes nothing and would eventually overflow.
    if (next_region_ < memory_limit_) next_region_ *= 2;
    if (largest_region_ != 0) next_region_ = std::min(next_region_, largest_region_);
  }

  // Returns all regions without a chunk in use if that makes room for `rounded` bytes.
  [[gnu::noinline]] bool collect(Size rounded) {
    if (!garbage_collection_) return false;
    Size const room = memory_limit_ - reserved() + chunks_.idle_bytes();
    return rounded <= room && release_idle();
  }

  // Returns all regions without a chunk in use, except for the one at `kept`.
  bool release_idle(Address kept = 0) {
    if (!returns_memory()) return false;
    bool const any =
        chunks_.release_idle([this](Address region, Size size) { release(region, size); }, kept);
    if (any) timestamps_.forget();
    return any;
  }

  Size reserved() const { return counted().reserved.current; }

  BfcPreset const& preset_;
  Size memory_limit_;
  Size next_region_;
  Size largest_region_;  // 0: none
  Address first_region_ = 0;
  Size largest_waste_;  // a chunk is split if the rest reaches this
  bool garbage_collection_;
  bool coalesce_regions_;
  bool timestamped_frees_;
  bool extend_as_requested_;
  bool shrink_;
  Chunks chunks_;
  Timestamps timestamps_{chunks_};
  std::uint64_t early_ = 0;  // frees that the frontier passed early because memory ran out
};

}  // namespace allocbench

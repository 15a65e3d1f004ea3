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
// JAX uses the same allocator with other defaults. ONNX Runtime derived its arena from it, with
// other sizes of regions, two ways to extend, and shrinkage; its streams are not modeled.
//
// Source: tsl/framework/bfc_allocator.cc of TensorFlow 2.21, reproduced chunk for chunk, including
// growth, without timestamped frees, and with one difference: if the device keeps refusing a region
// of at most 2304 bytes, a fixed point of the reduction by 10%, TensorFlow retries forever; this
// strategy refuses the request.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "core/abilities.hpp"
#include "parts/segment_blocks.hpp"

namespace allocbench {

struct Chunks : BestFitBlocks {
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
  };

  Bfc(Device& device, Options const& given)
      : Allocator(device),
        preset_(bfc_preset(given)),
        memory_limit_(memory_limit(device.capacity(), preset_, given)),
        largest_region_(region_size(given, "largest_region", preset_.largest_region)),
        garbage_collection_(given.flag("garbage_collection")),
        coalesce_regions_(given.flag("coalesce_regions")),
        extend_as_requested_(extends_as_requested(given)),
        shrink_(given.flag("shrink")) {
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
  Block do_allocate(Size requested, Stream) override {
    Size const rounded = round_up(requested, kRounding);
    Index chunk = chunks_.find(rounded);
    if (chunk == kNone && extend(rounded)) chunk = chunks_.find(rounded);
    if (chunk == kNone && collect(rounded)) {
      count_retry();
      if (extend(rounded)) chunk = chunks_.find(rounded);
    }
    if (chunk == kNone) return {};
    Size const size = chunks_.block(chunk).size;
    bool const split = size >= 2 * rounded || size - rounded >= largest_waste_;
    return chunks_.allocate(chunk, split ? rounded : size, requested);
  }

  Block do_deallocate(Address address, Stream) override { return chunks_.deallocate(address); }

  void do_trim() override { release_idle(); }

  void do_step() override {
    if (!shrink_) return;
    release_idle(extend_as_requested_ ? 0 : first_region_);
    next_region_ = kRegionAfterShrinking;
  }

  std::vector<Segment> do_snapshot() const override { return chunks_.snapshot(); }

  Size do_largest_free() const override { return chunks_.largest_free(); }

  void do_check() const override {
    chunks_.check();
    require(reserved() <= memory_limit_, "the regions together do not exceed the memory limit");
  }

  Counters do_counters() const override { return {{"search_steps", chunks_.search_steps()}}; }

  Size do_room() const override { return memory_limit_ - reserved(); }

 private:
  static constexpr Size kDefaultLargestWaste = 128 * kMiB;
  static constexpr Size kRegionAfterShrinking = 2 * kMiB;
  static constexpr Size kNoLimit = Size{1} << 62;  // more than any device has
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
  bool extend(Size rounded) {
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
  bool collect(Size rounded) {
    if (!garbage_collection_) return false;
    Size const room = memory_limit_ - reserved() + chunks_.idle_bytes();
    return rounded <= room && release_idle();
  }

  // Returns all regions without a chunk in use, except for the one at `kept`.
  bool release_idle(Address kept = 0) {
    if (!returns_memory()) return false;
    return chunks_.release_idle([this](Address region, Size size) { release(region, size); }, kept);
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
  bool extend_as_requested_;
  bool shrink_;
  Chunks chunks_;
};

}  // namespace allocbench

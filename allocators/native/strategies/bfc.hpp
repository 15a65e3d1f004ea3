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
#include <string>
#include <string_view>
#include <vector>

#include "core/allocator.hpp"
#include "core/options.hpp"
#include "core/types.hpp"
#include "strategies/bfc/chunks.hpp"

namespace allocbench {

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

class Bfc : public Allocator {
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

  Bfc(Device& device, Options const& given);
  StrategyInfo const& info() const override { return strategy; }

 protected:
  Block do_allocate(Size requested, Stream) override;
  Block do_deallocate(Address address, Stream) override {
    return timestamped_frees_ ? timestamps_.free(address) : chunks_.deallocate(address);
  }
  void do_trim() override;
  void do_step() override;
  std::vector<Segment> do_snapshot() const override { return chunks_.snapshot(); }
  Size do_largest_free() const override;
  void do_check() const override;
  Counters do_counters() const override;
  std::string do_summary() const override;
  Size do_room() const override { return memory_limit_ - reserved(); }

 private:
  bool extend(Size rounded);
  void double_next_region();
  bool collect(Size rounded);
  bool release_idle(Address kept = 0);
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

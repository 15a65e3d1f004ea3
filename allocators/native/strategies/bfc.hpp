// strategies/bfc.hpp: TensorFlow's best fit with coalescing.
// SPDX-License-Identifier: Apache-2.0
//
// Sizes are rounded up to 256 bytes. The smallest free chunk that fits is taken, the lowest
// address among equals; it is split when it is at least twice as large as needed or when the rest
// would reach a limit (128 MiB, or a fraction of the memory limit). A freed chunk coalesces with
// its free neighbours at once. When no chunk fits, a region is asked from the device: 2 MiB
// first, then twice as much each time, never beyond the memory limit; a refused size is cut by a
// tenth (in float32) until it is granted or too small. With garbage collection, regions without a
// chunk in use go back to the device before a request is refused.
// A request and a free take O(log n) steps in the free chunks.
//
// The rules, growth included, are those of the allocator in TensorFlow 2.21, chunk for chunk. One
// difference: it asks for ever when the device keeps refusing a region of at most 2304 bytes, a
// fixed point of the cut; here the request is refused.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/allocator.hpp"
#include "parts/block_pool.hpp"

namespace allocbench {

class Bfc final : public Allocator {
 public:
  static constexpr Size kRounding = 256;
  static constexpr Option options[] = {
      {"memory_limit", OptionType::kBytes, "",
       "bytes that all regions together may have; default: the capacity of the device"},
      {"per_process_memory_fraction", OptionType::kNumber, "",
       "the memory limit as a share of the capacity, above 0 and at most 1"},
      {"system_reserve", OptionType::kFlag, "false",
       "leave to the system what TensorFlow leaves: 225 MiB of a device below 2 GiB, else a "
       "twentieth, at least 300 MiB; applies to the default memory limit alone"},
      {"allow_growth", OptionType::kFlag, "true",
       "grow by doubling regions; else one region of the whole memory limit"},
      {"garbage_collection", OptionType::kFlag, "false",
       "give regions without a chunk in use back to the device before refusing a request"},
      {"fragmentation_fraction", OptionType::kNumber, "0",
       "split when the rest reaches this share of the memory limit; 0: when it reaches 128 MiB"},
      {"coalesce_regions", OptionType::kFlag, "false",
       "join a region that begins where another ends"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "bfc",
      .summary = "best fit with coalescing, in regions that double (TensorFlow)",
      .worst_case = "half of a chunk, at most 128 MiB, inside it; free chunks too small outside",
      .reference = "BFCAllocator of TensorFlow and XLA",
      .options = options,
      .largest_request = [](Size capacity) { return round_down(capacity, kRounding); },
      .exemption = "sizes are rounded up to 256 bytes",
  };

  Bfc(Device& device, Options const& given);
  StrategyInfo const& info() const override { return strategy; }

 private:
  Block do_allocate(Size requested, Stream) override;
  Block do_deallocate(Address address, Stream) override { return pool_.give(address); }
  void do_trim() override;
  std::vector<Segment> do_snapshot() const override { return pool_.snapshot(); }
  Size do_largest_free() const override { return pool_.largest_free(); }
  void do_check() const override;
  Counters do_counters() const override { return {{"steps", pool_.steps()}}; }
  std::string do_summary() const override;

  bool extend(Size rounded);
  bool collect(Size rounded);
  void give_back(std::vector<BestFitPool::Region> const& regions);
  Size reserved() const { return counted().reserved.current; }

  Size memory_limit_;
  Size next_region_;
  Size largest_waste_;  // a chunk is split when the rest reaches this
  bool garbage_collection_;
  bool coalesce_regions_;
  BestFitPool pool_;
  std::map<Address, Size> segments_;  // as the device gave them: a joined region holds several
};

}  // namespace allocbench

// strategies/expandable.hpp: memory in pages that are mapped where a block needs them.
// SPDX-License-Identifier: Apache-2.0
//
// Addresses are reserved in plenty and memory is mapped to them by pages; a request that fits
// nowhere is stitched together from free pages that lie anywhere. All of it is in Stitching; sizes
// are rounded up to 256 bytes. Reserved bytes stay near the allocated ones.
//
// Bad at: device calls. A page is a call to map and a call to unmap each time that it moves; larger
// pages move more at once, and are less often wholly free.
#pragma once

#include <vector>

#include "parts/stitching.hpp"

namespace allocbench {

class Expandable final : public Stitching {
 public:
  static constexpr Size kRounding = 256;
  static constexpr Option options[] = {
      {"page", OptionType::kBytes, "2MiB",
       "bytes mapped and unmapped at a time, a multiple of the device's granularity"},
      {"small", OptionType::kBytes, "1MiB", "the largest request that the small pools serve"},
      {"slack", OptionType::kNumber, "0",
       "new pages are mapped before free ones are moved while reserved bytes stay within this "
       "share above the peak of allocated bytes; inf: until the device is full"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "expandable",
      .summary = "virtual memory: free pages from different places are stitched into one block",
      .worst_case = "255 bytes inside a block; outside, pages that hold any part of a block",
      .reference = "Guo et al., GMLake, ASPLOS 2024; expandable segments of PyTorch",
      .options = options,
      .largest_request = [](Size capacity) { return round_down(capacity, 2 * kMiB); },
      .exemption = "memory is mapped in pages of 2 MiB",
      .by_stream = true,
  };

  Expandable(Device& device, Options const& given);
  StrategyInfo const& info() const override { return strategy; }

 private:
  Block do_allocate(Size requested, Stream stream) override {
    return block(allocate_in_pools(round_up(requested, kRounding), requested, stream));
  }
  Block do_deallocate(Address address, Stream stream) override {
    return deallocate_in_pools(address, stream).block;
  }
  void do_trim() override { trim_pools(); }
  void do_step() override { streams_done(); }
  std::vector<Segment> do_snapshot() const override { return blocks().snapshot(); }
  Size do_largest_free() const override { return blocks().largest_free(); }
  void do_check() const override { blocks().check(); }
  Counters do_counters() const override { return stitching_counters(); }
};

}  // namespace allocbench

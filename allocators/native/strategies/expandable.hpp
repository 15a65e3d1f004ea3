// strategies/expandable.hpp: memory in pages that are mapped where a block needs them.
// SPDX-License-Identifier: Apache-2.0
//
// Reserves far more addresses than memory and maps memory page by page. If no free block fits a
// request, free pages from any block are moved together into one. The mechanism is in Stitching;
// sizes are rounded up to 256 bytes. Reserved bytes stay close to allocated bytes.
//
// Bad at: device calls. Each move of a page costs a map and an unmap call. Larger pages move more
// bytes per call but are less often wholly free.
#pragma once

#include <vector>

#include "parts/stitching.hpp"

namespace allocbench {

class Expandable : public Stitching {
 public:
  static constexpr Size kRounding = 256;
  static constexpr Option options[] = {
      {"page", OptionType::kBytes, "2MiB",
       "bytes mapped or unmapped at a time, a multiple of the device's granularity"},
      {"small", OptionType::kBytes, "1MiB", "largest request that is served from the small pools"},
      {"slack", OptionType::kNumber, "0",
       "map new pages, instead of moving free ones, while reserved bytes exceed the peak of "
       "allocated bytes by at most this fraction; inf: until the device is full"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "expandable",
      .summary = "virtual memory: stitches free pages from anywhere into one block (GMLake)",
      .worst_case = "inside a block: 255 bytes; outside: the rest of pages that are partly used",
      .reference = "Guo et al., GMLake, ASPLOS 2024; expandable segments of PyTorch",
      .options = options,
      .largest_request = [](Size capacity) { return round_down(capacity, 2 * kMiB); },
      .exemption = "memory is mapped in pages of 2 MiB",
      .by_stream = true,
  };

  Expandable(Device& device, Options const& given)
      : Stitching(device, given, given.bytes("page"), given.bytes("small"), given.number("slack")) {
    if (!(given.number("slack") >= 0)) given.reject("slack", "must be at least 0");
  }

  StrategyInfo const& info() const override { return strategy; }

 protected:
  [[gnu::flatten]] Block do_allocate(Size requested, Stream stream) override {
    return block(allocate_in_pools(round_up(requested, kRounding), requested, stream));
  }
  [[gnu::flatten]] Block do_deallocate(Address address, Stream stream) override {
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

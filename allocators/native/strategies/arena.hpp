// strategies/arena.hpp: records and plans the first step; later steps follow the plan.
// SPDX-License-Identifier: Apache-2.0
//
// TFLite's idea for programs that run in steps. Until the end of the first step, requests are
// served by best fit with coalescing and recorded. The blocks that begin and end within
// the step are planned: each gets an offset in one arena. In later steps, the k-th request takes
// the place planned for the k-th request of the first step if it is no larger and the place is
// free. Every other request is served by best fit. Counters show how many requests and bytes were
// planned and how many fell back. A planned request or free takes O(log n) time for n live planned
// blocks.
//
// Bad at: steps that differ from the first. All requests after an extra request fall back, and the
// arena is not used.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <memory_resource>
#include <vector>

#include "core/allocator.hpp"
#include "core/types.hpp"
#include "parts/address_map.hpp"
#include "parts/segment_blocks.hpp"
#include "planners/planners.hpp"

namespace allocbench {

// The live blocks of an arena, which may or may not follow the plan. Every call takes O(log n)
// steps.
class Placements {
 public:
  // Returns false, and changes nothing, if the block overlaps another one.
  bool add(Block const& block) {
    auto const above = alive_.lower_bound(block.address);
    if (above != alive_.end() && above->first < block.end()) return false;
    if (above != alive_.begin() && std::prev(above)->second.end() > block.address) return false;
    alive_.emplace_hint(above, block.address, block);
    return true;
  }

  // Removes and returns the block at `address`, or a block of size 0.
  Block remove(Address address) {
    auto const entry = alive_.find(address);
    if (entry == alive_.end()) return {};
    Block const block = entry->second;
    alive_.erase(entry);
    return block;
  }

  bool empty() const { return alive_.empty(); }
  // The segment that contains all the blocks.
  Segment tiled_in(Address start, Size size) const {
    return tiled(start, size, alive_.begin(), alive_.end());
  }

 private:
  std::pmr::unsynchronized_pool_resource nodes_;
  std::pmr::map<Address, Block> alive_{&nodes_};
};

class Arena : public Allocator {
 public:
  static constexpr Size kAlignment = 256;
  static constexpr Option options[] = {
      {"segment", OptionType::kBytes, "32MiB",
       "bytes that best fit requests from the device at a time"},
      {"planner", OptionType::kText, "greedy_by_size",
       "the planner for the step: greedy_by_size as in TFLite today, execution_order as in TFLite "
       "of 2018, or any other planner"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "arena",
      .summary = "records and plans the first step; later steps follow the plan (TFLite)",
      .worst_case = "the whole arena, if later steps differ from the first",
      .reference = "SimpleMemoryArena and ArenaPlanner of TensorFlow Lite",
      .options = options,
      .largest_request = [](Size capacity) { return round_down(capacity, kAlignment); },
      .exemption = "sizes are rounded up to 256 bytes",
  };

  Arena(Device& device, Options const& given);
  StrategyInfo const& info() const override { return strategy; }

 private:
  enum class Phase { kBefore, kRecording, kServing };

  struct Request {
    Size size;
    std::uint32_t first;     // instant of the request
    std::uint32_t last = 0;  // instant of the free; 0: still alive at the end of the step
    bool planned = false;
    Size offset = 0;
  };
  struct Served {
    std::uint64_t requests = 0;
    Size bytes = 0;
  };

 protected:
  Block do_allocate(Size requested, Stream) override;
  Block do_deallocate(Address address, Stream) override;
  void do_trim() override { release_idle(); }
  void do_step() override;
  std::vector<Segment> do_snapshot() const override;
  Size do_largest_free() const override;
  void do_check() const override;
  Counters do_counters() const override;

 private:
  void make_plan();
  Block from_plan(Size size, Size requested);
  Block from_blocks(Size size, Size requested);
  bool holds_arena();
  bool in_arena(Address address) const { return arena_ != 0 && address - arena_ < height_; }
  Index grow(Size size);
  bool release_idle();

  Size segment_size_;
  PlannerInfo const& planner_;
  Phase phase_ = Phase::kBefore;
  std::uint32_t instants_ = 0;     // requests and frees so far in the recorded step
  std::vector<Request> requests_;  // of the recorded step, in order
  AddressMap recorded_;            // address -> request, for live blocks of the recorded step
  std::size_t cursor_ = 0;         // the next request of the plan

  Address arena_ = 0;
  Size height_ = 0;       // of the plan
  bool refused_ = false;  // the device refused the arena in this step
  Placements alive_;      // planned blocks
  BestFitBlocks blocks_;
  Served planned_, fallback_;  // requests served from the plan and by best fit
};

}  // namespace allocbench

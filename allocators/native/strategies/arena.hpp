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

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory_resource>
#include <string>
#include <vector>

#include "core/allocator.hpp"
#include "core/errors.hpp"
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

  Arena(Device& device, Options const& given)
      : Allocator(device), segment_size_(given.bytes("segment")), planner_(chosen_planner(given)) {
    if (segment_size_ < kAlignment) given.reject("segment", "must be at least 256 bytes");
  }

  StrategyInfo const& info() const override { return strategy; }

 private:
  static PlannerInfo const& chosen_planner(Options const& given) {
    std::string valid;
    for (PlannerInfo const& candidate : planners()) {
      if (candidate.name == given.text("planner")) return candidate;
      valid.append(valid.empty() ? "" : ", ").append(candidate.name);
    }
    given.reject("planner", "must be one of " + valid);
  }

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
  [[gnu::flatten]] Block do_allocate(Size requested, Stream) override {
    Size const size = round_up(requested, kAlignment);
    Block block = phase_ == Phase::kServing ? from_plan(size, requested) : Block{};
    Served& served = block.size != 0 ? planned_ : fallback_;
    if (block.size == 0) block = from_blocks(size, requested);
    if (block.size == 0) return {};
    ++served.requests;
    served.bytes += requested;
    if (phase_ == Phase::kRecording) {
      recorded_.insert(block.address, static_cast<Index>(requests_.size()));
      requests_.push_back({size, instants_++});
    }
    return block;
  }

  [[gnu::flatten]] Block do_deallocate(Address address, Stream) override {
    if (in_arena(address)) return alive_.remove(address);
    Block const freed = blocks_.deallocate(address);
    if (phase_ == Phase::kRecording && freed.size != 0)
      if (Index const request = recorded_.erase(address); request != kNone)
        requests_[request].last = instants_++;
    return freed;
  }

  void do_trim() override { release_idle(); }

  void do_step() override {
    if (phase_ == Phase::kRecording) make_plan();
    phase_ = phase_ == Phase::kBefore ? Phase::kRecording : Phase::kServing;
    cursor_ = 0;
    refused_ = false;
  }

  std::vector<Segment> do_snapshot() const override {
    auto all = blocks_.snapshot();
    if (arena_ != 0) all.push_back(alive_.tiled_in(arena_, height_));
    return all;
  }

  Size do_largest_free() const override {
    Size const in_arena = arena_ == 0 ? 0 : largest_free_in({alive_.tiled_in(arena_, height_)});
    return std::max(blocks_.largest_free(), in_arena);
  }

  void do_check() const override {
    blocks_.check();
    require(arena_ != 0 || alive_.empty(), "planned blocks are alive only in an arena");
  }

  Counters do_counters() const override {
    return {{"planned_requests", planned_.requests},
            {"planned_bytes", planned_.bytes},
            {"fallback_requests", fallback_.requests},
            {"fallback_bytes", fallback_.bytes}};
  }

 private:
  void make_plan() {
    std::vector<Lifetime> lifetimes;
    for (Request& request : requests_) {
      request.planned = request.last != 0;
      if (request.planned) lifetimes.push_back({request.size, request.first, request.last});
    }
    Plan const plan = planner_.make(lifetimes, kAlignment, {}).plan;
    auto offset = plan.offsets.begin();
    for (Request& request : requests_)
      if (request.planned) request.offset = *offset++;
    height_ = plan.height;
    recorded_ = {};
    release_idle();  // makes room for the arena, which replaces the memory of the recorded step
  }

  Block from_plan(Size size, Size requested) {
    if (cursor_ == requests_.size()) return {};
    Request const& request = requests_[cursor_++];
    if (!request.planned || size > request.size || !holds_arena()) return {};
    Block const block{arena_ + request.offset, size, requested};
    return alive_.add(block) ? block : Block{};
  }

  Block from_blocks(Size size, Size requested) {
    Index node = blocks_.find(size);
    if (node == kNone) node = grow(size);
    if (node == kNone && release_idle()) {
      count_retry();
      node = grow(size);
    }
    return node == kNone ? Block{} : blocks_.allocate(node, size, requested);
  }

  // Obtains the arena from the device if it is not held yet. Tries at most once per step.
  bool holds_arena() {
    if (arena_ == 0 && !refused_) {
      arena_ = acquire(height_);
      refused_ = arena_ == 0;
    }
    return arena_ != 0;
  }

  bool in_arena(Address address) const { return arena_ != 0 && address - arena_ < height_; }

  [[gnu::noinline]] Index grow(Size size) {
    auto const [address, granted] = acquire_between(size, segment_size_, kAlignment);
    if (address == 0) return kNone;
    return blocks_.add(address, granted);
  }

  // Returns the arena and the other segments if they have no live block; false if none was
  // returned.
  [[gnu::noinline]] bool release_idle() {
    if (!returns_memory()) return false;
    bool const any =
        blocks_.release_idle([this](Address segment, Size size) { release(segment, size); });
    if (arena_ == 0 || !alive_.empty()) return any;
    release(arena_, height_);
    arena_ = 0;
    return true;
  }

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

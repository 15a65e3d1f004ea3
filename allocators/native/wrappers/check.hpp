// wrappers/check.hpp: checks every block and every free against a record of the live blocks.
// SPDX-License-Identifier: Apache-2.0
//
// An invalid free throws BadFree, whose message distinguishes a double free, an address inside a
// live block and an address that was never allocated. A bad block (too small, overlapping a live
// block, outside the device's segments) is a bug of the allocator and throws InvariantViolation.
// check() also compares the record with the snapshot. Blocks that are still live at the end are
// leaks.
//
// O(log n) per event for n live blocks. Uses memory for every address that was ever allocated.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

#include "core/text.hpp"
#include "wrappers/wrapper.hpp"

namespace allocbench {

class Check final : public Wrapper {
 public:
  static constexpr WrapperInfo wrapper = {
      .name = "check",
      .summary = "finds double frees, frees of unknown addresses, misplaced blocks, and leaks",
  };

  struct Live {
    Block block;
    Stream stream;
    std::uint64_t request;  // number of requests before this one, including failed ones
    std::uint64_t step;     // number of steps begun before this request
  };

  Check(Device& device, Options const&, MakeInner const& make_inner)
      : Wrapper(device, make_inner) {}

  // in order of request
  std::vector<Live> live() const {
    std::scoped_lock const guard(lock());
    std::vector<Live> all;
    for (auto const& [_, live] : live_) all.push_back(live);
    std::ranges::sort(all, {}, &Live::request);
    return all;
  }

 private:
  static std::string describe(Check::Live const& live) {
    return "the block of request " + std::to_string(live.request) + " (" +
           human_bytes(live.block.requested) + " at " + hex(live.block.address) + ")";
  }

  Block do_allocate(Size requested, Stream stream) override {
    std::uint64_t const request = counted().allocations + counted().failures;
    Block const block = Wrapper::do_allocate(requested, stream);
    if (block.size == 0) return block;
    Live const live{block, stream, request, steps_};
    if (block.requested != requested || block.size < requested)
      report(live,
             "has " + human_bytes(block.size) + " for a request of " + human_bytes(requested));
    check_placement(live);
    live_.emplace(block.address, live);
    return block;
  }

  Block do_deallocate(Address address, Stream stream) override {
    auto const entry = live_.find(address);
    if (entry == live_.end()) throw BadFree(bad_free(address));
    Live const live = entry->second;
    Block const freed = Wrapper::do_deallocate(address, stream);
    if (freed.size != live.block.size || freed.requested != live.block.requested)
      report(live, "is freed as a block of " + human_bytes(freed.size) + " for a request of " +
                       human_bytes(freed.requested));
    freed_[address] = live.request;
    live_.erase(entry);
    return freed;
  }

  void do_step() override {
    Wrapper::do_step();
    ++steps_;
  }

  void do_check() const override {
    Wrapper::do_check();
    auto live = live_.begin();
    for (Segment const& segment : inner().snapshot())
      for (Block const& block : segment.blocks) {
        if (!block.allocated()) continue;
        require(live != live_.end() && live->first == block.address &&
                    live->second.block.size == block.size &&
                    live->second.block.requested == block.requested,
                "the snapshot's allocated blocks are the live blocks");
        ++live;
      }
    require(live == live_.end(), "every live block is in the snapshot");
  }

  void check_placement(Live const& live) const {
    Block const& block = live.block;
    auto const next = live_.lower_bound(block.address);
    if (next != live_.end() && next->first < block.end())
      report(live, "overlaps " + describe(next->second));
    if (next != live_.begin() && std::prev(next)->second.block.end() > block.address)
      report(live, "overlaps " + describe(std::prev(next)->second));
    if (!inside_a_segment(block)) report(live, "is not inside one segment of the device");
  }

  bool inside_a_segment(Block const& block) const {
    try {
      return device().locate(block.address).segment == device().locate(block.end() - 1).segment;
    } catch (BadFree const&) {
      return false;
    }
  }

  [[noreturn]] void report(Live const& live, std::string const& defect) const {
    throw InvariantViolation("check: " + std::string(info().name) + ": " + describe(live) + " " +
                             defect);
  }

  std::string bad_free(Address address) const {
    std::string const free = " free of " + hex(address) + ": ";
    if (auto const above = live_.upper_bound(address); above != live_.begin())
      if (Live const& live = std::prev(above)->second; address < live.block.end())
        return "check: foreign" + free + std::to_string(address - live.block.address) +
               " bytes into " + describe(live);
    if (auto const entry = freed_.find(address); entry != freed_.end())
      return "check: double" + free + "the block of request " + std::to_string(entry->second) +
             " is free";
    return "check: foreign" + free + "never handed out";
  }

  std::map<Address, Live> live_;
  std::unordered_map<Address, std::uint64_t> freed_;  // address -> the last request that had it
  std::uint64_t steps_ = 0;
};

}  // namespace allocbench

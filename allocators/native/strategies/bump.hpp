// strategies/bump.hpp: allocates by advancing an offset and never reuses memory.
// SPDX-License-Identifier: Apache-2.0
//
// This is the least work with which an allocator can still check its frees. Its time per event is
// therefore the floor of the measurement: the replay loop, the lock, the counters and one hash
// table. It is not meant for use, because it needs as much memory as a program allocates in total.
#pragma once

#include <map>
#include <vector>

#include "core/allocator.hpp"
#include "parts/buffers.hpp"

namespace allocbench {

class Bump : public Allocator {
 public:
  static constexpr Size kAlignment = 256;
  static constexpr Option options[] = {
      {"segment", OptionType::kBytes, "1GiB", "bytes requested from the device at a time"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "bump",
      .summary = "takes the next free bytes and never reuses any: a lower bound for time",
      .worst_case = "everything that was ever freed",
      .reference = "linear allocation",
      .options = options,
      .candidate = false,
      .keeps_free_blocks = false,
      .largest_request = [](Size capacity) { return round_down(capacity, kAlignment); },
      .exemption = "sizes are rounded up to 256 bytes",
  };

  Bump(Device& device, Options const& given)
      : Allocator(device), segment_size_(given.bytes("segment")) {
    if (segment_size_ == 0) given.reject("segment", "must be at least 1 byte");
  }
  StrategyInfo const& info() const override { return strategy; }

 private:
  struct Extent {
    Size size;
    Size used = 0;  // bytes allocated from the front
  };
  using Segments = std::map<Address, Extent>;

 protected:
  [[gnu::flatten]] Block do_allocate(Size requested, Stream) override {
    Size const size = round_up(requested, kAlignment);
    if (current_ == segments_.end() || size > current_->second.size - current_->second.used) {
      auto const grown = grow(size);
      if (grown == segments_.end()) return {};
      current_ = grown;
    }
    auto& [start, extent] = *current_;
    Address const address = start + extent.used;
    extent.used += size;
    return blocks_.insert({address, size, requested});
  }

  [[gnu::flatten]] Block do_deallocate(Address address, Stream) override {
    return blocks_.erase(address);
  }

  void do_trim() override {
    auto const blocks = alive();
    for (auto segment = segments_.begin(); segment != segments_.end();) {
      auto const& [start, extent] = *segment;
      auto const block = blocks.lower_bound(start);
      if (block != blocks.end() && block->first < start + extent.size) {
        ++segment;
        continue;
      }
      if (segment == current_) current_ = segments_.end();
      release(start, extent.size);
      segment = segments_.erase(segment);
    }
  }

  Size do_largest_free() const override { return largest_free_in(Bump::do_snapshot()); }

  std::vector<Segment> do_snapshot() const override {
    auto const blocks = alive();
    std::vector<Segment> all;
    for (auto const& [start, extent] : segments_)
      all.push_back(tiled(start, extent.size, blocks.lower_bound(start),
                          blocks.lower_bound(start + extent.size)));
    return all;
  }

 private:
  std::map<Address, Block> alive() const {
    std::map<Address, Block> blocks;
    for (Segment const& segment : blocks_.segments())
      blocks.emplace(segment.address, segment.blocks.front());
    return blocks;
  }

  // Returns the new segment, or end() if the device refuses. Not inlined, so that most requests
  // save no registers for it.
  [[gnu::noinline]] Segments::iterator grow(Size size) {
    auto const [start, granted] = acquire_between(size, segment_size_, kAlignment);
    return start == 0 ? segments_.end() : segments_.emplace(start, Extent{granted}).first;
  }

  Size segment_size_;
  LoneBlocks blocks_;
  Segments segments_;
  Segments::iterator current_ = segments_.end();
};

}  // namespace allocbench

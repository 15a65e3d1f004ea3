// detail.hpp: records data for charts during a replay: peaks, device calls, free blocks by size.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "core/allocator.hpp"

namespace allocbench {

// Bytes after an event.
struct Level {
  std::uint64_t event;
  Size requested;
  Size allocated;
  Size reserved;
};

// A call to the device and the event that caused it. `kind` is a Device::CallKind.
struct StampedCall {
  std::uint64_t event;
  std::uint8_t kind;
  std::uint8_t refused;
  Address address;
  Size size;
  double seconds;
};

// After an event: the free blocks with sizes from 2^size_class to just below 2^(size_class + 1).
struct FreeClass {
  std::uint64_t event;
  std::uint8_t size_class;
  std::uint64_t blocks;
  Size bytes;
};

// The block of an alloc event; both fields are 0 if the request failed.
struct Extent {
  Address address;
  Size size;
};

// Columns in the order of the events.
struct Detail {
  std::vector<Extent> placements;
  std::vector<Level> envelope;
  std::vector<StampedCall> device_calls;
  std::vector<FreeClass> free_blocks;
};

// Observes an allocator during a replay of `events` events. For each of `samples` intervals, the
// envelope contains the events with the lowest and the highest value of each kind of bytes, so no
// peak is lost (M4 of Jugel et al., VLDB 2014, without the ends of the intervals). Free blocks need
// a snapshot of the allocator and are sampled about a quarter as often.
class DetailRecorder {
 public:
  DetailRecorder(Allocator& allocator, std::size_t events, std::size_t samples)
      : allocator_(allocator),
        interval_(interval(events, samples)),
        free_interval_(interval(events, samples / 4)) {
    allocator_.device().take_calls();
    allocator_.device().keep_calls(true);
  }

  ~DetailRecorder() { allocator_.device().keep_calls(false); }
  DetailRecorder(DetailRecorder const&) = delete;
  DetailRecorder& operator=(DetailRecorder const&) = delete;

  void record_placement(Block const& block) {
    detail_.placements.push_back({block.address, block.size});
  }
  // Call `record_level` for each event with the statistics after it, and `after` when it is
  // complete.
  void record_level(std::size_t event, Stats const& stats) {
    Level const level{event, stats.requested.current, stats.allocated.current,
                      stats.reserved.current};
    if (event >= next_interval_) {
      close_interval();
      next_interval_ = event - event % interval_ + interval_;
    }
    if (lowest_.empty()) {
      lowest_.assign(kKinds, level);
      highest_.assign(kKinds, level);
      return;
    }
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      auto const field = kFields[kind];
      if (level.*field < lowest_[kind].*field) lowest_[kind] = level;
      if (level.*field > highest_[kind].*field) highest_[kind] = level;
    }
  }

  void after(std::size_t event) {
    last_ = event;
    for (Device::Call const& call : allocator_.device().take_calls())
      detail_.device_calls.push_back({event, static_cast<std::uint8_t>(call.kind), call.refused,
                                      call.address, call.size, call.seconds});
    if (event < next_sample_) return;
    next_sample_ = event + free_interval_;
    sample_free_blocks(event);
  }

  Detail result() {
    close_interval();
    if (next_sample_ > 0 && next_sample_ != last_ + free_interval_) sample_free_blocks(last_);
    return std::move(detail_);
  }

 private:
  static constexpr std::array<Size Level::*, 3> kFields{&Level::requested, &Level::allocated,
                                                        &Level::reserved};
  static constexpr std::size_t kKinds = kFields.size();

  static std::size_t interval(std::size_t events, std::size_t samples) {
    return std::max<std::size_t>(1, events / std::max<std::size_t>(1, samples));
  }

  void close_interval() {
    std::vector<Level>& ends = lowest_;
    ends.insert(ends.end(), highest_.begin(), highest_.end());
    std::ranges::sort(ends, {}, &Level::event);
    auto const duplicates = std::ranges::unique(ends, {}, &Level::event);
    detail_.envelope.insert(detail_.envelope.end(), ends.begin(), duplicates.begin());
    lowest_.clear();
    highest_.clear();
  }

  void sample_free_blocks(std::size_t event) {
    std::array<FreeClass, 64> classes{};
    for (Segment const& segment : allocator_.snapshot())
      for (Block const& block : segment.blocks) {
        if (block.allocated() || block.size == 0) continue;
        FreeClass& free_class = classes[static_cast<std::size_t>(std::bit_width(block.size)) - 1];
        ++free_class.blocks;
        free_class.bytes += block.size;
      }
    for (std::size_t size_class = 0; size_class < classes.size(); ++size_class)
      if (FreeClass const& free_class = classes[size_class]; free_class.blocks > 0)
        detail_.free_blocks.push_back(
            {event, static_cast<std::uint8_t>(size_class), free_class.blocks, free_class.bytes});
  }

  Allocator& allocator_;
  std::size_t interval_;
  std::size_t next_interval_ = 0;  // its first event
  std::size_t free_interval_;      // events between samples of the free blocks
  std::size_t next_sample_ = 0;    // of the free blocks
  std::size_t last_ = 0;           // the last event
  std::vector<Level> lowest_;      // by kind; empty if the interval has no level yet
  std::vector<Level> highest_;
  Detail detail_;
};

}  // namespace allocbench

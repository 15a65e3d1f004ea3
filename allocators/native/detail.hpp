// detail.hpp: records data for charts during a replay: peaks, device calls, free blocks by size.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
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
  DetailRecorder(Allocator& allocator, std::size_t events, std::size_t samples);
  ~DetailRecorder();
  DetailRecorder(DetailRecorder const&) = delete;
  DetailRecorder& operator=(DetailRecorder const&) = delete;

  void record_placement(Block const& block) {
    detail_.placements.push_back({block.address, block.size});
  }
  // Call `record_level` for each event with the statistics after it, and `after` when it is
  // complete.
  void record_level(std::size_t event, Stats const& stats);
  void after(std::size_t event);
  Detail result();

 private:
  static constexpr std::size_t kKinds = 3;

  void close_interval();
  void sample_free_blocks(std::size_t event);

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

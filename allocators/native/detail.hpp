// detail.hpp: what a replay records for charts: peaks, device calls and free blocks by size.
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

struct Detail {
  std::vector<Extent> placements;
  std::vector<Level> envelope;
  std::vector<StampedCall> device_calls;
  std::vector<FreeClass> free_blocks;
};

// Watches an allocator during a replay of `events` events. For each of `samples` intervals, the
// envelope holds the events with the lowest and highest value of each kind of bytes, so no peak is
// lost (M4 of Jugel et al., VLDB 2014, without the ends of the intervals). Free blocks, which take
// a snapshot of the allocator, are sampled about a quarter as often.
class DetailRecorder {
 public:
  DetailRecorder(Allocator& allocator, std::size_t events, std::size_t samples);
  ~DetailRecorder();
  DetailRecorder(DetailRecorder const&) = delete;
  DetailRecorder& operator=(DetailRecorder const&) = delete;

  void record_placement(Block const& block) {
    found_.placements.push_back({block.address, block.size});
  }
  void after(std::size_t event);
  void level(std::size_t event, Stats const& stats);
  Detail result();

 private:
  static constexpr std::size_t kKinds = 3;

  void close_interval();
  void look_at_free_blocks(std::size_t event);

  Allocator& allocator_;
  std::size_t interval_;
  std::size_t until_ = 0;  // the first event of the next interval
  std::size_t look_interval_;
  std::size_t next_look_ = 0;
  std::size_t last_ = 0;
  std::vector<Level> lowest_;  // by kind; empty if the interval has no level yet
  std::vector<Level> highest_;
  Detail found_;
};

}  // namespace allocbench

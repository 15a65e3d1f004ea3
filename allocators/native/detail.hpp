// detail.hpp: what a replay keeps for pictures: every peak, device calls, free blocks by size.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/allocator.hpp"

namespace allocbench {

// The bytes after an event.
struct Level {
  std::uint64_t event;
  Size requested;
  Size allocated;
  Size reserved;
};

// A call to the device, and the event during which it was made. `kind` is a Device::CallKind.
struct StampedCall {
  std::uint64_t event;
  std::uint8_t kind;
  std::uint8_t refused;
  Address address;
  Size size;
  double seconds;
};

// The free blocks after an event whose sizes are from 2^size_class up to twice that.
struct FreeClass {
  std::uint64_t event;
  std::uint8_t size_class;
  std::uint64_t blocks;
  Size bytes;
};

// The block of an alloc event; both are 0 when it failed.
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

// Watches an allocator during a replay of `events` events. The envelope has, for each of
// `samples` intervals, the events with the lowest and the highest bytes of each kind, so no peak is
// lost (M4 of Jugel et al., VLDB 2014, without the ends of the intervals). The free blocks are
// looked at about a quarter as often, which takes a snapshot of the allocator.
class DetailRecorder {
 public:
  DetailRecorder(Allocator& allocator, std::size_t events, std::size_t samples);
  ~DetailRecorder();
  DetailRecorder(DetailRecorder const&) = delete;
  DetailRecorder& operator=(DetailRecorder const&) = delete;

  void placed(Block const& block) { found_.placements.push_back({block.address, block.size}); }
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
  std::vector<Level> lowest_;  // by kind; empty when the interval has no level yet
  std::vector<Level> highest_;
  Detail found_;
};

}  // namespace allocbench

// native/held_streams.hpp: streams whose work does not end, for tests.
// SPDX-License-Identifier: Apache-2.0
//
// All work on a null GPU ends at once. A test can hold a stream: what is queued on it from then on
// ends when the test releases the stream, or when something waits for it. Waits of one stream for
// another's event are not modelled.
#pragma once

#include <atomic>
#include <compare>
#include <map>
#include <utility>
#include <vector>

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu {

// Not thread-safe, except for any().
class HeldStreams {
 public:
  // A handle alone is not enough: all devices have the same default streams, and all threads the
  // same handle of their own default stream.
  struct Queue {
    int device;
    Handle handle;                   // null for the default stream of the device
    std::uint64_t thread;            // 0 unless this is the default stream of a thread
    bool waits_for_default = false;  // and the default stream of the device waits for it
    auto operator<=>(Queue const&) const = default;
  };
  // The work of streams up to some point.
  using Work = std::vector<std::pair<Queue, std::uint64_t>>;

  // The queue that a handle denotes on this thread. `blocking`: it waits for the default stream.
  static Queue queue_of(int device, Handle stream, bool blocking);

  bool any() const { return held_ != 0; }
  void hold(Queue const& queue);
  void release(Queue const& queue);
  // Puts work on a stream; returns it with all work that must end before it, without what has
  // ended.
  Work put(Queue const& queue);
  bool ended(Work const& work) const;
  void end(Work const& work);
  // Ends all work of a device, or of one queue.
  void end_all(int device);
  void end_all(Queue const& queue);
  bool busy(Queue const& queue) const;

 private:
  struct State {
    bool held = false;
    std::uint64_t queued = 0, ended = 0;  // work that was put since it was first held
  };

  std::atomic<int> held_ = 0;
  std::map<Queue, State> queues_;  // that were held at any time
};

}  // namespace allocbench::null_gpu

// native/streams.hpp: streams, events and graph captures.
// SPDX-License-Identifier: Apache-2.0
//
// All work ends at once, except on streams that a test holds. With the setting late_events, an
// event is not ready before the program next waits for anything on its device, as if the host were
// far ahead. So that a program which polls an event goes on, it is also ready when it is asked a
// second time with no kernel launched in between.
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "null_gpu/native/api.hpp"
#include "null_gpu/native/memory.hpp"

namespace allocbench::null_gpu {

// Streams whose work does not end. What is queued on a stream after a test holds it ends when the
// test releases it, or when something waits for it. Waits of one stream for another's event are not
// modelled. Not thread-safe, except for any().
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

enum CaptureMode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };
enum CaptureStatus : int { kNone = 0, kActive = 1, kInvalidated = 2 };

class Streams : public Only<Streams> {
 public:
  struct Captured {
    CaptureStatus status = kNone;
    std::uint64_t id = 0;
    Handle graph = nullptr;
  };

  // `blocking`: it waits for the default stream, and that for it.
  Handle create(int priority, bool blocking);
  Status destroy(Handle stream);
  int priority(Handle stream);
  // Puts a kernel or a copy on a stream. True if the stream is capturing; adds a node to its graph.
  bool enqueue(Handle stream);

  Handle create_event();
  // Makes the event of another process known to this one.
  void open_event(Handle event);
  Status destroy_event(Handle event);
  // The event and the stream must be of one device.
  Status record(Handle event, Handle stream);
  Status wait(Handle stream, Handle event);
  Status elapsed(float* milliseconds, Handle begin, Handle end);
  // kNotReady before the work ends; kCapturedEvent if the event was recorded in a capture.
  Status query_event(Handle event);
  Status synchronize_event(Handle event);

  // As on a real GPU, waiting for a capturing stream is an error and makes the capture invalid.
  Status query(Handle stream);
  Status synchronize(Handle stream);
  Status synchronize_all(int device);
  // For calls that CUDA names potentially unsafe, such as cudaMalloc: an error, which invalidates
  // the captures that forbid them. These are captures of this thread, and captures in the global
  // mode of other threads if the mode of this thread is global, too; none if it is relaxed.
  Status check_unsafe();

  Status begin_capture(Handle stream, CaptureMode mode, Handle graph);
  Status end_capture(Handle stream, Handle* graph);
  Captured captured(Handle stream);
  // Whether any stream is capturing.
  bool captures() const { return capturing_ != 0; }

  // The work of a held stream up to now; empty for other streams.
  HeldStreams::Work put(Handle stream);
  bool ended(HeldStreams::Work const& work);
  // The default stream of a device, and another stream that the driver has not made, count as
  // streams of `device`.
  void hold(Handle stream, int device, bool held);

  // Destroys the streams and events of a device; returns the number of the events.
  std::size_t destroy_all(int device);
  struct Counts {
    std::size_t streams, events;
  };
  Counts counts();

  std::size_t nodes(Handle graph);
  void add_node(Handle graph);
  void destroy_graph(Handle graph);

 private:
  struct Capture {
    Handle origin, graph;
    CaptureMode mode;
    int device;
    std::thread::id thread;  // that began it
    bool valid = true;
  };
  struct Stream {
    int priority;
    bool blocking;
  };
  struct Event {
    std::optional<double> time = {};  // when it was recorded, in ms
    std::uint64_t capture = 0;        // in which it was recorded
    HeldStreams::Work work = {};      // for which it stands
    // With late_events, until it is ready: the waits of its device before it was recorded, and the
    // kernels launched before it was last asked.
    std::optional<std::uint64_t> waits = {}, kernels = {};
  };

  Capture* capture_of(Handle stream);
  // Whether an event is late: see above.
  bool late(Handle handle, Event& event);
  HeldStreams::Queue queue_of(Handle stream, int device) const;

  std::mutex mutex_;
  std::atomic<int> capturing_ = 0;
  std::array<std::atomic<std::uint64_t>, kMostDevices> waits_ = {};  // of the program, by device
  std::unordered_map<Handle, Stream> streams_;
  std::unordered_map<Handle, Event> events_;
  HeldStreams held_;
  std::unordered_map<std::uint64_t, Capture> captures_;
  std::unordered_map<Handle, std::uint64_t> stream_captures_;
  std::unordered_map<Handle, std::size_t> graph_nodes_;
  std::uint64_t last_capture_ = 0;
};

// Exchanges the capture mode of this thread, as cudaThreadExchangeStreamCaptureMode does.
void exchange_capture_mode(int* mode);

}  // namespace allocbench::null_gpu

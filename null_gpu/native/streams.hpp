// native/streams.hpp: streams, events and graph captures.
// SPDX-License-Identifier: Apache-2.0
//
// All work ends at once, except on streams that a test holds. With the setting late_events, an
// event is not ready before the program next waits for anything on its device, as if the host were
// far ahead. So that a program which polls an event goes on, it is also ready when it is asked a
// second time with no kernel launched in between.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <compare>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "null_gpu/native/api.hpp"
#include "null_gpu/native/machine.hpp"

namespace allocbench::null_gpu {

inline Handle const kLegacyStream = reinterpret_cast<Handle>(1);
inline Handle const kPerThreadStream = reinterpret_cast<Handle>(2);

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
  static Queue queue_of(int device, Handle stream, bool blocking) {
    if (stream == kLegacyStream) stream = nullptr;
    bool const of_thread = stream == kPerThreadStream;
    return {device, stream, of_thread ? this_thread() : 0, of_thread || blocking};
  }

  bool any() const { return held_ != 0; }
  void hold(Queue const& queue) {
    State& state = queues_[queue];
    ++state.queued;
    if (!std::exchange(state.held, true)) ++held_;
  }
  void release(Queue const& queue) {
    State& state = queues_[queue];
    state.ended = state.queued;
    if (std::exchange(state.held, false)) --held_;
  }
  // Puts work on a stream; returns it with all work that must end before it, without what has
  // ended.
  Work put(Queue const& queue) {
    Work work;
    if (!any()) return work;
    for (auto& [other, state] : queues_) {
      if (!state.held) continue;
      bool const waited_for =
          queue.handle == nullptr && other.device == queue.device && other.waits_for_default;
      if (other == queue) ++state.queued;
      if ((other == queue || waited_for) && state.ended < state.queued)
        work.emplace_back(other, state.queued);
    }
    return work;
  }

  bool ended(Work const& work) const {
    return std::ranges::all_of(
        work, [this](auto const& part) { return part.second <= queues_.at(part.first).ended; });
  }
  void end(Work const& work) {
    for (auto const& [queue, number] : work) {
      State& state = queues_.at(queue);
      state.ended = std::max(state.ended, number);
    }
  }
  // Ends all work of a device, or of one queue.
  void end_all(int device) {
    for (auto& [queue, state] : queues_)
      if (queue.device == device) state.ended = state.queued;
  }
  void end_all(Queue const& queue) {
    if (auto const entry = queues_.find(queue); entry != queues_.end())
      entry->second.ended = entry->second.queued;
  }
  bool busy(Queue const& queue) const {
    auto const entry = queues_.find(queue);
    return entry != queues_.end() && entry->second.ended < entry->second.queued;
  }

 private:
  // The number of the calling thread. Unlike a thread id, it is never reused.
  static std::uint64_t this_thread() {
    static std::atomic<std::uint64_t> threads = 0;
    static thread_local std::uint64_t const number = ++threads;
    return number;
  }

  struct State {
    bool held = false;
    std::uint64_t queued = 0, ended = 0;  // work that was put since it was first held
  };

  std::atomic<int> held_ = 0;
  std::map<Queue, State> queues_;  // that were held at any time
};

enum CaptureMode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };
enum CaptureStatus : int { kNone = 0, kActive = 1, kInvalidated = 2 };
inline thread_local int capture_mode = kGlobal;  // see cudaThreadExchangeStreamCaptureMode

class Streams : public Only<Streams> {
 public:
  struct Captured {
    CaptureStatus status = kNone;
    std::uint64_t id = 0;
    Handle graph = nullptr;
  };

  // `blocking`: it waits for the default stream, and that for it.
  Handle create(int priority, bool blocking) {
    Handle const stream = Machine::get().new_handle();
    std::lock_guard const lock(mutex_);
    streams_[stream] = {priority, blocking};
    return stream;
  }
  Status destroy(Handle stream) {
    std::lock_guard const lock(mutex_);
    return streams_.erase(stream) == 1 ? kSuccess : kInvalidHandle;
  }
  int priority(Handle stream) {
    std::lock_guard const lock(mutex_);
    auto const entry = streams_.find(stream);
    return entry == streams_.end() ? 0 : entry->second.priority;
  }
  // Puts a kernel or a copy on a stream. True if the stream is capturing; adds a node to its graph.
  bool enqueue(Handle stream) {
    if (capturing_ == 0) return false;
    std::lock_guard const lock(mutex_);
    Capture* const capture = capture_of(stream);
    if (capture != nullptr) ++graph_nodes_[capture->graph];
    return capture != nullptr;
  }

  Handle create_event() {
    Handle const event = Machine::get().new_handle();
    open_event(event);
    return event;
  }
  // Makes the event of another process known to this one.
  void open_event(Handle event) {
    std::lock_guard const lock(mutex_);
    events_.try_emplace(event);
  }
  Status destroy_event(Handle event) {
    std::lock_guard const lock(mutex_);
    return events_.erase(event) == 1 ? kSuccess : kInvalidHandle;
  }
  // The event and the stream must be of one device.
  Status record(Handle event, Handle stream) {
    if (device_of(event) != device_of(stream)) return kInvalidHandle;
    std::lock_guard const lock(mutex_);
    auto const entry = events_.find(event);
    if (entry == events_.end()) return kInvalidHandle;
    auto const capture = stream_captures_.find(stream);
    bool const captured = capture != stream_captures_.end();
    entry->second.time = now_ms();
    entry->second.capture = captured ? capture->second : 0;
    entry->second.work.clear();
    entry->second.kernels.reset();
    entry->second.waits.reset();
    if (Machine::get().settings().late_events != 0) entry->second.waits = waits_[device_of(event)];
    if (!captured && held_.any())
      entry->second.work = held_.put(queue_of(stream, device_of(stream)));
    return kSuccess;
  }

  // A stream that waits for an event of a capture joins the capture.
  Status wait(Handle stream, Handle event) {
    if (capturing_ == 0) return kSuccess;
    std::lock_guard const lock(mutex_);
    auto const entry = events_.find(event);
    if (entry != events_.end() && captures_.contains(entry->second.capture))
      stream_captures_[stream] = entry->second.capture;
    return kSuccess;
  }

  Status elapsed(float* milliseconds, Handle begin, Handle end) {
    std::lock_guard const lock(mutex_);
    auto const first = events_.find(begin), last = events_.find(end);
    for (auto const& event : {first, last}) {
      if (event == events_.end() || !event->second.time) return kInvalidHandle;
      if (!held_.ended(event->second.work)) return kNotReady;
    }
    // Time of the host; at least 1 microsecond, because programs divide by it.
    *milliseconds = static_cast<float>(std::max(*last->second.time - *first->second.time, 1e-3));
    return kSuccess;
  }

  // kNotReady before the work ends; kCapturedEvent if the event was recorded in a capture.
  Status query_event(Handle event) {
    std::lock_guard const lock(mutex_);
    auto const entry = events_.find(event);
    if (entry == events_.end()) return kInvalidHandle;
    if (entry->second.capture != 0) return kCapturedEvent;
    bool const ready = held_.ended(entry->second.work) && !late(event, entry->second);
    return ready ? kSuccess : kNotReady;
  }

  Status synchronize_event(Handle event) {
    std::lock_guard const lock(mutex_);
    auto const entry = events_.find(event);
    if (entry == events_.end()) return kInvalidHandle;
    if (entry->second.capture != 0) return kCapturedEvent;
    ++waits_[device_of(event)];
    held_.end(entry->second.work);
    return kSuccess;
  }

  // As on a real GPU, waiting for a capturing stream is an error and makes the capture invalid.
  Status query(Handle stream) {
    if (capturing_ == 0 && !held_.any()) return kSuccess;
    std::lock_guard const lock(mutex_);
    if (Capture* const capture = capture_of(stream)) {
      capture->valid = false;
      return kCaptureUnsupported;
    }
    return held_.busy(queue_of(stream, device_of(stream))) ? kNotReady : kSuccess;
  }

  Status synchronize(Handle stream) {
    Status const status = query(stream);
    if (status == kSuccess || status == kNotReady) ++waits_[device_of(stream)];
    if (status != kNotReady) return status;
    std::lock_guard const lock(mutex_);
    held_.end_all(queue_of(stream, device_of(stream)));
    return kSuccess;
  }

  Status synchronize_all(int device) {
    ++waits_[device];
    if (capturing_ == 0 && !held_.any()) return kSuccess;
    std::lock_guard const lock(mutex_);
    Status status = kSuccess;
    for (auto& [id, capture] : captures_) {
      if (capture.device != device) continue;
      capture.valid = false;
      status = kCaptureUnsupported;
    }
    if (status == kSuccess) held_.end_all(device);
    return status;
  }

  // For calls that CUDA names potentially unsafe, such as cudaMalloc: an error, which invalidates
  // the captures that forbid them. These are captures of this thread, and captures in the global
  // mode of other threads if the mode of this thread is global, too; none if it is relaxed.
  Status check_unsafe() {
    if (capturing_ == 0 || capture_mode == kRelaxed) return kSuccess;
    std::lock_guard const lock(mutex_);
    Status status = kSuccess;
    for (auto& [id, capture] : captures_) {
      bool const forbids = capture.thread == std::this_thread::get_id()
                               ? capture.mode != kRelaxed
                               : capture.mode == kGlobal && capture_mode == kGlobal;
      if (!forbids) continue;
      capture.valid = false;
      status = kCaptureUnsupported;
    }
    return status;
  }

  Status begin_capture(Handle stream, CaptureMode mode, Handle graph) {
    std::lock_guard const lock(mutex_);
    bool const is_default = reinterpret_cast<Address>(stream) <= 1;
    if (mode < kGlobal || mode > kRelaxed) return kInvalidValue;
    if (is_default) return kCaptureUnsupported;
    if (capture_of(stream) != nullptr) return kIllegalState;
    if (graph == nullptr) graph = Machine::get().new_handle();
    stream_captures_[stream] = ++last_capture_;
    captures_[last_capture_] = {stream, graph, mode, device_of(stream), std::this_thread::get_id()};
    graph_nodes_.try_emplace(graph, 0);
    ++capturing_;
    return kSuccess;
  }

  Status end_capture(Handle stream, Handle* graph) {
    std::lock_guard const lock(mutex_);
    auto const entry = stream_captures_.find(stream);
    if (entry == stream_captures_.end()) return kIllegalState;
    std::uint64_t const id = entry->second;
    Capture const capture = captures_[id];
    if (capture.origin != stream) return kInvalidValue;
    bool const own = capture.thread == std::this_thread::get_id();
    if (capture.mode != kRelaxed && !own) return kWrongThread;
    captures_.erase(id);
    auto const belongs = [id](auto const& item) { return item.second == id; };
    std::erase_if(stream_captures_, belongs);
    --capturing_;
    *graph = capture.valid ? capture.graph : nullptr;
    return capture.valid ? kSuccess : kCaptureInvalidated;
  }

  Captured captured(Handle stream) {
    if (capturing_ == 0) return {};
    std::lock_guard const lock(mutex_);
    Capture const* const capture = capture_of(stream);
    if (capture == nullptr) return {};
    return {capture->valid ? kActive : kInvalidated, stream_captures_[stream], capture->graph};
  }

  // Whether any stream is capturing.
  bool captures() const { return capturing_ != 0; }

  // The work of a held stream up to now; empty for other streams.
  HeldStreams::Work put(Handle stream) {
    if (!held_.any()) return {};
    std::lock_guard const lock(mutex_);
    return held_.put(queue_of(stream, device_of(stream)));
  }
  bool ended(HeldStreams::Work const& work) {
    std::lock_guard const lock(mutex_);
    return held_.ended(work);
  }
  // The default stream of a device, and another stream that the driver has not made, count as
  // streams of `device`.
  void hold(Handle stream, int device, bool held) {
    std::lock_guard const lock(mutex_);
    auto const queue = queue_of(stream, streams_.contains(stream) ? device_of(stream) : device);
    if (held)
      held_.hold(queue);
    else
      held_.release(queue);
  }

  // Destroys the streams and events of a device; returns the number of the events.
  std::size_t destroy_all(int device) {
    std::lock_guard const lock(mutex_);
    auto const belongs = [device](auto const& item) { return device_of(item.first) == device; };
    std::erase_if(streams_, belongs);
    return std::erase_if(events_, belongs);
  }
  struct Counts {
    std::size_t streams, events;
  };
  Counts counts() {
    std::lock_guard const lock(mutex_);
    return {streams_.size(), events_.size()};
  }

  std::size_t nodes(Handle graph) {
    std::lock_guard const lock(mutex_);
    auto const entry = graph_nodes_.find(graph);
    return entry == graph_nodes_.end() ? 0 : entry->second;
  }
  void add_node(Handle graph) {
    std::lock_guard const lock(mutex_);
    ++graph_nodes_[graph];
  }
  void destroy_graph(Handle graph) {
    std::lock_guard const lock(mutex_);
    graph_nodes_.erase(graph);
  }

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

  static double now_ms() {
    auto const now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::milli>(now).count();
  }

  Capture* capture_of(Handle stream) {
    auto const entry = stream_captures_.find(stream);
    return entry == stream_captures_.end() ? nullptr : &captures_[entry->second];
  }
  // Whether an event is late: see above.
  bool late(Handle handle, Event& event) {
    if (event.waits != waits_[device_of(handle)]) event.waits.reset();
    if (!event.waits) return false;
    std::uint64_t const kernels = Machine::get().kernels;
    bool const polled = std::exchange(event.kernels, kernels) == kernels;
    if (polled) event.waits.reset();
    return !polled;
  }

  HeldStreams::Queue queue_of(Handle stream, int device) const {
    auto const entry = streams_.find(stream);
    return HeldStreams::queue_of(device, stream, entry != streams_.end() && entry->second.blocking);
  }

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

}  // namespace allocbench::null_gpu

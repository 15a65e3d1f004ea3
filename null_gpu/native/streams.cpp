// native/streams.cpp: streams, events and graph captures.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/streams.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "null_gpu/native/machine.hpp"

namespace allocbench::null_gpu {

namespace {

Handle const kLegacyStream = reinterpret_cast<Handle>(1);
Handle const kPerThreadStream = reinterpret_cast<Handle>(2);

std::uint64_t this_thread() {
  static std::atomic<std::uint64_t> threads = 0;
  static thread_local std::uint64_t const number = ++threads;
  return number;
}

thread_local int mode_of_thread = kGlobal;

double now_ms() {
  auto const now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

}  // namespace

HeldStreams::Queue HeldStreams::queue_of(int device, Handle stream, bool blocking) {
  if (stream == kLegacyStream) stream = nullptr;
  bool const of_thread = stream == kPerThreadStream;
  return {device, stream, of_thread ? this_thread() : 0, of_thread || blocking};
}

void HeldStreams::hold(Queue const& queue) {
  State& state = queues_[queue];
  ++state.queued;
  if (!std::exchange(state.held, true)) ++held_;
}

void HeldStreams::release(Queue const& queue) {
  State& state = queues_[queue];
  state.ended = state.queued;
  if (std::exchange(state.held, false)) --held_;
}

HeldStreams::Work HeldStreams::put(Queue const& queue) {
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

bool HeldStreams::ended(Work const& work) const {
  return std::ranges::all_of(
      work, [this](auto const& part) { return part.second <= queues_.at(part.first).ended; });
}

void HeldStreams::end(Work const& work) {
  for (auto const& [queue, number] : work) {
    State& state = queues_.at(queue);
    state.ended = std::max(state.ended, number);
  }
}

void HeldStreams::end_all(int device) {
  for (auto& [queue, state] : queues_)
    if (queue.device == device) state.ended = state.queued;
}

void HeldStreams::end_all(Queue const& queue) {
  if (auto const entry = queues_.find(queue); entry != queues_.end())
    entry->second.ended = entry->second.queued;
}

bool HeldStreams::busy(Queue const& queue) const {
  auto const entry = queues_.find(queue);
  return entry != queues_.end() && entry->second.ended < entry->second.queued;
}

Handle Streams::create(int priority, bool blocking) {
  Handle const stream = Machine::get().new_handle();
  std::lock_guard const lock(mutex_);
  streams_[stream] = {priority, blocking};
  return stream;
}

Status Streams::destroy(Handle stream) {
  std::lock_guard const lock(mutex_);
  return streams_.erase(stream) == 1 ? kSuccess : kInvalidHandle;
}

int Streams::priority(Handle stream) {
  std::lock_guard const lock(mutex_);
  auto const entry = streams_.find(stream);
  return entry == streams_.end() ? 0 : entry->second.priority;
}

bool Streams::enqueue(Handle stream) {
  if (capturing_ == 0) return false;
  std::lock_guard const lock(mutex_);
  Capture* const capture = capture_of(stream);
  if (capture != nullptr) ++graph_nodes_[capture->graph];
  return capture != nullptr;
}

Handle Streams::create_event() {
  Handle const event = Machine::get().new_handle();
  open_event(event);
  return event;
}

void Streams::open_event(Handle event) {
  std::lock_guard const lock(mutex_);
  events_.try_emplace(event);
}

Status Streams::destroy_event(Handle event) {
  std::lock_guard const lock(mutex_);
  return events_.erase(event) == 1 ? kSuccess : kInvalidHandle;
}

Status Streams::record(Handle event, Handle stream) {
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
  if (!captured && held_.any()) entry->second.work = held_.put(queue_of(stream, device_of(stream)));
  return kSuccess;
}

// A stream that waits for an event of a capture joins the capture.
Status Streams::wait(Handle stream, Handle event) {
  if (capturing_ == 0) return kSuccess;
  std::lock_guard const lock(mutex_);
  auto const entry = events_.find(event);
  if (entry != events_.end() && captures_.contains(entry->second.capture))
    stream_captures_[stream] = entry->second.capture;
  return kSuccess;
}

Status Streams::elapsed(float* milliseconds, Handle begin, Handle end) {
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

Status Streams::query_event(Handle event) {
  std::lock_guard const lock(mutex_);
  auto const entry = events_.find(event);
  if (entry == events_.end()) return kInvalidHandle;
  if (entry->second.capture != 0) return kCapturedEvent;
  bool const ready = held_.ended(entry->second.work) && !late(event, entry->second);
  return ready ? kSuccess : kNotReady;
}

Status Streams::synchronize_event(Handle event) {
  std::lock_guard const lock(mutex_);
  auto const entry = events_.find(event);
  if (entry == events_.end()) return kInvalidHandle;
  if (entry->second.capture != 0) return kCapturedEvent;
  ++waits_[device_of(event)];
  held_.end(entry->second.work);
  return kSuccess;
}

Status Streams::query(Handle stream) {
  if (capturing_ == 0 && !held_.any()) return kSuccess;
  std::lock_guard const lock(mutex_);
  if (Capture* const capture = capture_of(stream)) {
    capture->valid = false;
    return kCaptureUnsupported;
  }
  return held_.busy(queue_of(stream, device_of(stream))) ? kNotReady : kSuccess;
}

Status Streams::synchronize(Handle stream) {
  Status const status = query(stream);
  if (status == kSuccess || status == kNotReady) ++waits_[device_of(stream)];
  if (status != kNotReady) return status;
  std::lock_guard const lock(mutex_);
  held_.end_all(queue_of(stream, device_of(stream)));
  return kSuccess;
}

Status Streams::synchronize_all(int device) {
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

Status Streams::check_unsafe() {
  if (capturing_ == 0 || mode_of_thread == kRelaxed) return kSuccess;
  std::lock_guard const lock(mutex_);
  Status status = kSuccess;
  for (auto& [id, capture] : captures_) {
    bool const forbids = capture.thread == std::this_thread::get_id()
                             ? capture.mode != kRelaxed
                             : capture.mode == kGlobal && mode_of_thread == kGlobal;
    if (!forbids) continue;
    capture.valid = false;
    status = kCaptureUnsupported;
  }
  return status;
}

Status Streams::begin_capture(Handle stream, CaptureMode mode, Handle graph) {
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

Status Streams::end_capture(Handle stream, Handle* graph) {
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

Streams::Captured Streams::captured(Handle stream) {
  if (capturing_ == 0) return {};
  std::lock_guard const lock(mutex_);
  Capture const* const capture = capture_of(stream);
  if (capture == nullptr) return {};
  return {capture->valid ? kActive : kInvalidated, stream_captures_[stream], capture->graph};
}

HeldStreams::Work Streams::put(Handle stream) {
  if (!held_.any()) return {};
  std::lock_guard const lock(mutex_);
  return held_.put(queue_of(stream, device_of(stream)));
}

bool Streams::ended(HeldStreams::Work const& work) {
  std::lock_guard const lock(mutex_);
  return held_.ended(work);
}

void Streams::hold(Handle stream, int device, bool held) {
  std::lock_guard const lock(mutex_);
  auto const queue = queue_of(stream, streams_.contains(stream) ? device_of(stream) : device);
  if (held)
    held_.hold(queue);
  else
    held_.release(queue);
}

std::size_t Streams::destroy_all(int device) {
  std::lock_guard const lock(mutex_);
  auto const belongs = [device](auto const& item) { return device_of(item.first) == device; };
  std::erase_if(streams_, belongs);
  return std::erase_if(events_, belongs);
}

Streams::Counts Streams::counts() {
  std::lock_guard const lock(mutex_);
  return {streams_.size(), events_.size()};
}

std::size_t Streams::nodes(Handle graph) {
  std::lock_guard const lock(mutex_);
  auto const entry = graph_nodes_.find(graph);
  return entry == graph_nodes_.end() ? 0 : entry->second;
}

void Streams::add_node(Handle graph) {
  std::lock_guard const lock(mutex_);
  ++graph_nodes_[graph];
}

void Streams::destroy_graph(Handle graph) {
  std::lock_guard const lock(mutex_);
  graph_nodes_.erase(graph);
}

Streams::Capture* Streams::capture_of(Handle stream) {
  auto const entry = stream_captures_.find(stream);
  return entry == stream_captures_.end() ? nullptr : &captures_[entry->second];
}

bool Streams::late(Handle handle, Event& event) {
  if (event.waits != waits_[device_of(handle)]) event.waits.reset();
  if (!event.waits) return false;
  std::uint64_t const kernels = Machine::get().kernels;
  bool const polled = std::exchange(event.kernels, kernels) == kernels;
  if (polled) event.waits.reset();
  return !polled;
}

HeldStreams::Queue Streams::queue_of(Handle stream, int device) const {
  auto const entry = streams_.find(stream);
  return HeldStreams::queue_of(device, stream, entry != streams_.end() && entry->second.blocking);
}

void exchange_capture_mode(int* mode) { *mode = std::exchange(mode_of_thread, *mode); }

}  // namespace allocbench::null_gpu

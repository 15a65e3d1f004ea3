// null_gpu/streams.cpp: streams, events and graph captures, on which all work ends at once.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/streams.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "null_gpu/machine.hpp"

namespace allocbench::null_gpu {

namespace {

thread_local int mode_of_thread = kGlobal;

double now_ms() {
  auto const now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

}  // namespace

Streams& Streams::get() {
  static Streams* streams = new Streams;
  return *streams;
}

Handle Streams::create(int priority) {
  Handle const stream = Machine::get().new_handle();
  if (priority != 0) {
    std::lock_guard const lock(mutex_);
    priorities_[stream] = priority;
  }
  return stream;
}

int Streams::priority(Handle stream) {
  std::lock_guard const lock(mutex_);
  auto const entry = priorities_.find(stream);
  return entry == priorities_.end() ? 0 : entry->second;
}

bool Streams::enqueue(Handle stream) {
  if (capturing_ == 0) return false;
  std::lock_guard const lock(mutex_);
  Capture* const capture = capture_of(stream);
  if (capture != nullptr) ++graph_nodes_[capture->graph];
  return capture != nullptr;
}

Status Streams::record(Handle event, Handle stream) {
  if (device_of(event) != device_of(stream)) return kInvalidHandle;
  std::lock_guard const lock(mutex_);
  event_times_[event] = now_ms();
  auto const capture = stream_captures_.find(stream);
  if (capture == stream_captures_.end()) {
    event_captures_.erase(event);
  } else {
    event_captures_[event] = capture->second;
  }
  return kSuccess;
}

// A stream that waits for an event of a capture joins the capture.
Status Streams::wait(Handle stream, Handle event) {
  if (capturing_ == 0) return kSuccess;
  std::lock_guard const lock(mutex_);
  auto const entry = event_captures_.find(event);
  if (entry != event_captures_.end() && captures_.contains(entry->second)) {
    stream_captures_[stream] = entry->second;
  }
  return kSuccess;
}

Status Streams::elapsed(float* milliseconds, Handle begin, Handle end) {
  std::lock_guard const lock(mutex_);
  auto const first = event_times_.find(begin), last = event_times_.find(end);
  if (first == event_times_.end() || last == event_times_.end()) return kInvalidHandle;
  // Time of the host; at least 1 microsecond, because programs divide by it.
  *milliseconds = static_cast<float>(std::max(last->second - first->second, 1e-3));
  return kSuccess;
}

void Streams::destroy_event(Handle event) {
  std::lock_guard const lock(mutex_);
  event_times_.erase(event);
  event_captures_.erase(event);
}

Status Streams::synchronize(Handle stream) {
  if (capturing_ == 0) return kSuccess;
  std::lock_guard const lock(mutex_);
  Capture* const capture = capture_of(stream);
  if (capture == nullptr) return kSuccess;
  capture->valid = false;
  return kCaptureUnsupported;
}

Status Streams::synchronize_all() {
  if (capturing_ == 0) return kSuccess;
  std::lock_guard const lock(mutex_);
  for (auto& [id, capture] : captures_) capture.valid = false;
  return kCaptureUnsupported;
}

Status Streams::check_unsafe() {
  if (capturing_ == 0 || mode_of_thread == kRelaxed) return kSuccess;
  std::lock_guard const lock(mutex_);
  Status status = kSuccess;
  for (auto& [id, capture] : captures_) {
    if (capture.mode != kGlobal) continue;
    capture.valid = false;
    status = kCaptureUnsupported;
  }
  return status;
}

Status Streams::begin_capture(Handle stream, CaptureMode mode, Handle graph) {
  std::lock_guard const lock(mutex_);
  if (stream == nullptr || capture_of(stream) != nullptr) return kCaptureUnsupported;
  if (graph == nullptr) graph = Machine::get().new_handle();
  stream_captures_[stream] = ++last_capture_;
  captures_[last_capture_] = {stream, graph, mode};
  graph_nodes_.try_emplace(graph, 0);
  ++capturing_;
  return kSuccess;
}

Status Streams::end_capture(Handle stream, Handle* graph) {
  std::lock_guard const lock(mutex_);
  auto const entry = stream_captures_.find(stream);
  if (entry == stream_captures_.end()) return kInvalidValue;
  std::uint64_t const id = entry->second;
  Capture const capture = captures_[id];
  if (capture.origin != stream) return kInvalidValue;
  captures_.erase(id);
  auto const belongs = [id](auto const& item) { return item.second == id; };
  std::erase_if(stream_captures_, belongs);
  std::erase_if(event_captures_, belongs);
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

void exchange_capture_mode(int* mode) { *mode = std::exchange(mode_of_thread, *mode); }

}  // namespace allocbench::null_gpu

// null_gpu/streams.hpp: streams, events and graph captures, on which all work ends at once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "null_gpu/api.hpp"

namespace allocbench::null_gpu {

enum CaptureMode : int { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };
enum CaptureStatus : int { kNone = 0, kActive = 1, kInvalidated = 2 };

class Streams {
 public:
  struct Captured {
    CaptureStatus status = kNone;
    std::uint64_t id = 0;
    Handle graph = nullptr;
  };

  static Streams& get();

  Handle create(int priority);
  int priority(Handle stream);
  // Puts a kernel or a copy on a stream. True if the stream is capturing; adds a node to its graph.
  bool enqueue(Handle stream);

  // The event and the stream must be of one device.
  Status record(Handle event, Handle stream);
  Status wait(Handle stream, Handle event);
  Status elapsed(float* milliseconds, Handle begin, Handle end);
  void destroy_event(Handle event);

  // As on a real GPU, waiting for a capturing stream is an error and makes the capture invalid.
  Status synchronize(Handle stream);
  Status synchronize_all();
  // An error, which invalidates the captures, while a stream captures in the global mode, unless
  // the capture mode of this thread is relaxed. For calls such as cudaMalloc.
  Status check_unsafe();

  Status begin_capture(Handle stream, CaptureMode mode, Handle graph);
  Status end_capture(Handle stream, Handle* graph);
  Captured captured(Handle stream);

  std::size_t nodes(Handle graph);
  void add_node(Handle graph);
  void destroy_graph(Handle graph);

 private:
  struct Capture {
    Handle origin, graph;
    CaptureMode mode;
    bool valid = true;
  };

  Capture* capture_of(Handle stream);

  std::mutex mutex_;
  std::atomic<int> capturing_ = 0;
  std::unordered_map<Handle, int> priorities_;
  std::unordered_map<std::uint64_t, Capture> captures_;
  std::unordered_map<Handle, std::uint64_t> stream_captures_, event_captures_;
  std::unordered_map<Handle, double> event_times_;
  std::unordered_map<Handle, std::size_t> graph_nodes_;
  std::uint64_t last_capture_ = 0;
};

// Exchanges the capture mode of this thread, as cudaThreadExchangeStreamCaptureMode does.
void exchange_capture_mode(int* mode);

}  // namespace allocbench::null_gpu

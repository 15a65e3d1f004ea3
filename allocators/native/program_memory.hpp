// program_memory.hpp: the memory of a running program on one GPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/allocator.hpp"
#include "devices/cuda.hpp"
#include "latency.hpp"
#include "registry.hpp"

namespace allocbench {

// An allocator at work for a program: what a strategy need not know of streams and graphs.
//
// A block may be used on other streams than its own. When it is freed, it stays allocated until the
// work queued there up to then is done, for which an event on each of them stands. Its own stream
// needs none: what is asked for there comes after. A strategy that would hand a block of one stream
// to another is given one instance for each stream (per_stream).
//
// A graph uses the addresses that were handed out while it was captured each time it is launched.
// Requests of streams that are captured are served by an allocator of the graph's own, which stays
// until the graph is released and its blocks are freed. Events wait until no graph is captured.
class ProgramMemory {
 public:
  using GraphPool = std::pair<std::uint64_t, std::uint64_t>;
  using Captured = std::function<bool(cuda::Stream)>;

  // The wrappers around the strategy come first in `layers`. With `poison`, freed memory is filled
  // with bytes 0xFF, a NaN in every floating-point type, in the order of its stream.
  ProgramMemory(std::vector<Layer> layers, int ordinal, std::optional<Size> limit, bool poison);

  // 0 when there is no memory; `failure` then says why, in lines.
  Address allocate(Size size, cuda::Stream stream, std::string& failure);
  // False when the address is none of a block. Frees after the device was closed mean nothing.
  bool deallocate(Address address);
  void use_on(Address address, cuda::Stream stream);  // the block, besides its own stream

  void trim();
  void step();
  void reset_peaks();
  void limit(Size bytes) { device_.limit(bytes); }
  void close();  // all goes back; later requests fail
  // The begin and the size of the segment that an address lies in; zeros when there is none.
  std::pair<Address, Size> segment_of(Address address) const;

  void begin_capture(GraphPool pool, Captured captured);
  void end_capture(GraphPool pool);
  void release(GraphPool pool);

  CudaDevice& device() { return device_; }
  Allocator& allocator() { return *allocator_; }

  // What the program saw. Latencies contain waiting for other threads and for the device.
  struct Seen {
    Latency alloc;
    Latency free;
    std::uint64_t failures = 0;  // requests that failed for good
    std::uint64_t retries = 0;   // requests that first had to wait for events, or trim a graph's
    std::uint64_t waiting = 0;   // blocks freed whose events are not done
    std::uint64_t deferred = 0;  // frees that had to wait
    Size gpu_free_at_start = 0;  // of the whole GPU, all processes
    Size gpu_free_least = 0;     // when reserved bytes were at a new peak
  };
  Seen seen() const;

 private:
  struct Graph {
    std::unique_ptr<Allocator> allocator;
    int users = 0;
    std::size_t blocks = 0;
  };
  using Graphs = std::map<GraphPool, Graph>;
  struct Live {
    Graph* graph;  // null: the program's own
    cuda::Stream stream;
    Stream number;
    std::vector<cuda::Stream> used_on;
    std::size_t events = 0;  // not done; the block is freed
    bool freed = false;
  };
  struct Capture {
    GraphPool pool;
    Captured captured;
  };

  Graph* graph_of(cuda::Stream stream);
  Address request(Graph* graph, Size size, cuda::Stream stream);
  bool wait_for_events();
  bool trim_others(Graph const* graph);
  void settle();
  void record(Address address, Live& live);
  void give_back(Address address);
  void drop_idle_graphs();
  std::string describe(Graph* graph, Size size);

  std::vector<Layer> layers_;
  bool poison_;
  CudaDevice device_;
  std::unique_ptr<Allocator> allocator_;
  mutable std::mutex mutex_;
  std::unordered_map<Address, Live> live_;
  Graphs graphs_;
  std::vector<Capture> captures_;
  std::vector<Address> unrecorded_;  // freed while a graph was captured
  std::unordered_map<cuda::Stream, std::deque<std::pair<cuda::Event, Address>>> events_;
  Size peak_ = 0;
  Seen seen_;
};

}  // namespace allocbench

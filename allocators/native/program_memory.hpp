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
#include "graph_memory.hpp"
#include "latency.hpp"
#include "registry.hpp"

namespace allocbench {

// Runs an allocator for a program, and handles the streams and graphs that strategies know nothing
// about.
//
// A block may be used on streams other than its own. When it is freed, it stays allocated until the
// work queued on those streams so far has finished, which is tracked by an event on each. Its own
// stream needs no event, because later requests there are ordered after that work. A strategy that
// would give a block of one stream to another stream runs as one instance per stream (per_stream).
//
// Requests of streams that are captured are served from memory of the graph's own, which stays
// until the graph is released and its blocks are freed: see GraphMemory. While a graph is captured,
// nothing waits for the GPU and nothing goes back to it, which would make the capture invalid:
// events are recorded, and memory is given back, after the last capture has ended. A request that
// cannot be served without fails.
class ProgramMemory {
 public:
  using GraphPool = std::pair<std::uint64_t, std::uint64_t>;
  using Captured = std::function<bool(cuda::Stream)>;

  // `layers`: the wrappers, outermost first, then the strategy. With `poison`, freed memory is
  // filled with 0xFF bytes, a NaN in every floating-point type, in stream order.
  ProgramMemory(std::vector<Layer> layers, int ordinal, std::optional<Size> limit, bool poison);

  // Returns 0 if there is no memory; `failure` then explains why and may have several lines.
  Address allocate(Size size, cuda::Stream stream, std::string& failure);
  // False if no block begins at the address. Does nothing once the device is closed.
  bool deallocate(Address address);
  void use_on(Address address, cuda::Stream stream);  // a stream other than the block's own

  void trim();
  void step();
  void reset_peaks();
  void reset_counts();  // of the totals: what came and went
  void limit(Size bytes) { device_.limit(bytes); }
  void close();  // gives all memory back; later requests fail
  // Address and size of the segment that contains an address; zeros if none does.
  std::pair<Address, Size> segment_of(Address address) const;

  void begin_capture(GraphPool pool, Captured captured);
  void end_capture(GraphPool pool);
  void release(GraphPool pool);

  CudaDevice& device() { return device_; }
  Allocator& allocator() { return *allocator_; }

  // Bytes, or blocks, now and at their highest, and all that came and went since the last reset.
  struct Flow {
    Gauge now;
    Size gained = 0;
    Size lost = 0;

    void add(Size amount) {
      now.add(amount);
      gained += amount;
    }
    void subtract(Size amount) {
      now.subtract(amount);
      lost += amount;
    }
    void set(Size amount) {
      if (amount > now.current)
        add(amount - now.current);
      else
        subtract(now.current - amount);
    }
  };
  // All blocks, those of graphs too. A block that was freed but is still used on a stream is
  // active and no longer allocated.
  struct Totals {
    Flow requested;
    Flow allocated;
    Flow active;
    Flow reserved;
    Flow graphs;  // of the reserved bytes, those of graphs
    Flow allocated_blocks;
    Flow active_blocks;
  };

  // What the program saw. Latencies contain waiting for other threads and for the device.
  struct Seen {
    Totals totals;
    Latency alloc;
    Latency free;
    std::uint64_t failures = 0;  // requests that failed after all retries
    std::uint64_t retries = 0;  // requests that first waited for events or trimmed other allocators
    std::uint64_t waiting = 0;  // freed blocks with unfinished events
    std::uint64_t deferred = 0;  // frees that had to wait for events
    Size gpu_free_at_start = 0;  // on the whole GPU, all processes included
    Size gpu_free_least = 0;     // at the highest peaks of reserved bytes
  };
  Seen seen() const;

 private:
  struct Graph {
    std::unique_ptr<GraphMemory> memory;
    int users = 0;
    std::size_t blocks = 0;
  };
  using Graphs = std::map<GraphPool, Graph>;
  struct Live {
    Graph* graph;  // null: the program's own
    CudaDevice::StreamName stream;
    Stream number;
    Size size;       // of the block
    Size requested;  // bytes
    std::vector<CudaDevice::StreamName> used_on;
    std::size_t events = 0;  // not done; the block is freed
    bool freed = false;
  };
  struct Capture {
    GraphPool pool;
    Captured captured;
  };

  Graph* graph_of(cuda::Stream stream);
  Allocator& allocator_of(Graph* graph);
  Address request(Graph* graph, Size size, cuda::Stream stream);
  bool wait_for_events();
  bool trim_others();
  void trim_graphs();
  void captures_ended();
  void settle();
  void record(Address address, Live& live);
  void give_back(Address address);
  void drop_idle_graphs();
  void count_reserved();
  Size graph_bytes() const;
  void note_free_bytes();
  template <class Reset>
  void each_total(Reset reset);
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
  std::map<CudaDevice::StreamName, std::deque<std::pair<cuda::Event, Address>>> events_;
  Seen seen_;
};

}  // namespace allocbench

// program.hpp: a running program that gets its memory from an allocator, on each of its GPUs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
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
#include "registry.hpp"
#include "timer.hpp"

namespace allocbench {

// Each launch of a graph uses the addresses of its capture, including those of blocks that have
// been freed since. So its memory must neither move nor return to the device while the graph
// exists, which few strategies guarantee. For every strategy of the program, the memory of graphs
// therefore comes from `caching` with its defaults, as in PyTorch, on a device that keeps all
// memory.
class GraphMemory {
 public:
  explicit GraphMemory(Device& device)
      : device_(device), allocator_(make({{"caching", {}}}, device_)) {}

  Allocator& allocator() { return *allocator_; }
  Size reserved() const { return device_.reserved(); }  // bytes
  // The graphs have been released: from now on, free memory may return to the device.
  void release() { device_.keep_memory(false); }

 private:
  // Passes calls on to a device, but keeps freed memory until `release`.
  class KeepingDevice final : public Device {
   public:
    explicit KeepingDevice(Device& device) : device_(device) { keep_memory(true); }
    ~KeepingDevice() override { device_.free_all(this); }
    Size stated_capacity() const override { return device_.stated_capacity(); }
    Size granularity() const override { return device_.granularity(); }
    bool simulated() const override { return device_.simulated(); }
    std::string cost_source() const override { return device_.cost_source(); }

   private:
    Address do_allocate(Size size, Size, double&) override { return device_.allocate(size, this); }
    bool do_free(Address segment, Size, double&) override {
      device_.free(segment);
      return true;
    }
    Address do_reserve(Size, double&) override { return 0; }
    bool do_unreserve(Address, Size, double&) override { return false; }
    bool do_map(Address, Size, Size, double&) override { return false; }
    bool do_unmap(Address, Size, double&) override { return false; }

    Device& device_;
  };

  KeepingDevice device_;
  std::unique_ptr<Allocator> allocator_;
};

// Runs an allocator for a program, and handles the streams and graphs that strategies know nothing
// about. Thread-safe.
//
// A block may be used on streams other than its own. When it is freed, it stays allocated until the
// work that is queued on those streams has finished. An event on each of them tracks that work. The
// block's own stream needs no event, because later requests there are ordered after the work. If a
// strategy could give a block of one stream to another stream, each stream gets its own instance of
// the strategy (per_stream).
//
// A request on a stream that is being captured gets memory that belongs to the graph. That memory
// stays until the graph is released and its blocks are freed: see GraphMemory. During a capture, a
// wait for the GPU or a return of memory would make the capture invalid. So events are recorded and
// memory is returned only after the last capture has ended, and a request that would need either of
// them fails.
class ProgramMemory {
 public:
  using GraphPool = std::pair<std::uint64_t, std::uint64_t>;
  using Captured = std::function<bool(cuda::Stream)>;

  // `layers`: the wrappers, outermost first, then the strategy. With `poison`, freed memory is
  // filled with 0xFF bytes, a NaN in every floating-point type, in stream order.
  ProgramMemory(std::vector<Layer> layers, int ordinal, std::optional<Size> limit, bool poison);

  // Returns the address of a block of at least `size` bytes. Returns 0 if there is no memory;
  // `failure` then explains why and may have several lines.
  Address allocate(Size size, cuda::Stream stream, std::string& failure);
  // False if no block begins at the address. Does nothing once the device is closed.
  bool deallocate(Address address);
  // The program also uses the block on this stream (PyTorch's record_stream).
  void use_on(Address address, cuda::Stream stream);

  void trim();
  void step();
  void reset_peaks();
  void reset_counts();  // sets `gained` and `lost` of all totals to 0
  void limit(Size bytes) { device_.limit(bytes); }
  void close();  // returns all memory to the device; later requests fail
  // Address and size of the segment that contains an address; zeros if none does.
  std::pair<Address, Size> segment_of(Address address) const;

  void begin_capture(GraphPool pool, Captured captured);
  void end_capture(GraphPool pool);
  void release(GraphPool pool);

  CudaDevice& device() { return device_; }
  Allocator& allocator() { return *allocator_; }

  // A number of bytes or blocks: the current and the peak value, and the sums of all increases and
  // decreases since the last reset.
  struct Flow {
    Gauge gauge;
    Size gained = 0;
    Size lost = 0;

    void add(Size amount) {
      gauge.add(amount);
      gained += amount;
    }
    void subtract(Size amount) {
      gauge.subtract(amount);
      lost += amount;
    }
    void set(Size amount) {
      if (amount > gauge.current)
        add(amount - gauge.current);
      else
        subtract(gauge.current - amount);
    }
  };
  // Sums over all blocks, including those of graphs. A block that was freed but is still used on a
  // stream is active and no longer allocated.
  struct Totals {
    Flow requested;
    Flow allocated;
    Flow active;
    Flow reserved;
    Flow graphs;  // reserved for graphs; included in `reserved`
    Flow allocated_blocks;
    Flow active_blocks;
  };

  // Statistics of the program's calls. Latencies include waiting for other threads and the device.
  struct ProgramStats {
    Totals totals;
    Latency alloc;
    Latency free;
    std::uint64_t failures = 0;  // requests that failed after all retries
    std::uint64_t retries = 0;   // retries after waiting for events or trimming memory of graphs
    std::uint64_t waiting = 0;   // freed blocks with unfinished events
    std::uint64_t deferred = 0;  // frees that had to wait for events
    Size gpu_free_at_start = 0;  // free bytes of the GPU, with the memory of all processes counted
    Size gpu_free_least = 0;     // the lowest value seen at a new peak of reserved bytes
  };
  ProgramStats stats() const;

 private:
  struct Graph {
    std::unique_ptr<GraphMemory> memory;
    int users = 0;           // captures that were begun and not released
    std::size_t blocks = 0;  // not freed yet
  };
  using Graphs = std::map<GraphPool, Graph>;
  struct Live {
    Graph* graph;  // null if the block does not belong to a graph
    CudaDevice::StreamName stream;
    Stream number;
    Size size;       // of the block
    Size requested;  // bytes
    std::vector<CudaDevice::StreamName> used_on;
    std::size_t cuda_events = 0;  // unfinished; only a freed block has any
    bool freed = false;
  };
  struct Capture {
    GraphPool pool;
    Captured captured;
  };

  Graph* graph_of(cuda::Stream stream);
  Allocator& allocator_of(Graph* graph);
  Address request(Graph* graph, Size size, cuda::Stream stream);
  bool wait_for_cuda_events();
  bool returned_by_graphs();
  void trim_graphs();
  void finish_captures();
  void process_cuda_events();
  void record_cuda_events(Address address, Live& live);
  void free_block(Address address);
  void drop_idle_graphs();
  void count_reserved();
  Size graph_bytes() const;
  void sample_gpu_free_bytes();
  template <class Visit>
  void for_each_total(Visit visit);
  std::string describe(Graph* graph, Size size);

  std::vector<Layer> layers_;
  bool poison_;
  CudaDevice device_;
  std::unique_ptr<Allocator> allocator_;
  mutable std::mutex mutex_;
  HeldAtFork const at_fork_{mutex_};
  std::unordered_map<Address, Live> live_;
  Graphs graphs_;
  std::vector<Capture> captures_;
  std::vector<Address> unrecorded_;  // freed during a capture; their events are not recorded yet
  std::map<CudaDevice::StreamName, std::deque<std::pair<cuda::Event, Address>>> events_;
  ProgramStats stats_;
};

// A program exists until the process ends, because a library may allocate or free blocks after it
// has switched to another allocator. A program never waits for the GIL.
class Program {
 public:
  // `layers` are the wrappers, outermost first, and then the strategy. `limit` is in bytes and
  // holds for each GPU. `poison`: see ProgramMemory. Throws SpecError for an allocator that does
  // not exist. Does not call CUDA before the first request, so that a program can fork or choose
  // its GPUs first.
  static Program& start(std::vector<Layer> layers, std::optional<Size> limit, bool poison);

  // The memory on a GPU, created on first use. Throws SpecError if there is no such GPU and
  // DeviceError if it cannot be used.
  ProgramMemory& on(int ordinal);
  ProgramMemory* find(int ordinal) const;  // null if `on` has not created it
  void for_each(std::function<void(ProgramMemory&)> const& call) const;

 private:
  static constexpr int kMostDevices = 64;

  Program(std::vector<Layer> layers, std::optional<Size> limit, bool poison)
      : layers_(std::move(layers)), limit_(limit), poison_(poison) {}

  std::vector<Layer> layers_;
  std::optional<Size> limit_;
  bool poison_;
  std::mutex mutex_;  // of those who create a memory
  std::array<std::atomic<ProgramMemory*>, kMostDevices> memory_ = {};
};

// -- entry_points.cpp: the allocation functions that PyTorch and CuPy call

// Routes PyTorch's calls, which do not identify a program, to this one from now on.
void serve_torch(Program* program);

// The reason why the last failed request of this thread through CuPy's entry point failed.
std::string last_failure();

}  // namespace allocbench

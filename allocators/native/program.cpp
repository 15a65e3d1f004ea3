// program.cpp: a running program that gets its memory from an allocator, on each of its GPUs.
// SPDX-License-Identifier: Apache-2.0
#include "program.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "devices/simulated.hpp"

namespace allocbench {
namespace {

constexpr unsigned char kPoison = 0xFF;

// The layers, with per_stream around the strategy if that is needed to separate streams.
std::vector<Layer> safe_between_streams(std::vector<Layer> layers) {
  require(!layers.empty(), "an allocator has at least one layer");
  bool const separated =
      strategy(layers.back().name).by_stream ||
      std::ranges::any_of(layers, [](Layer const& layer) { return layer.name == "per_stream"; });
  if (!separated) layers.insert(layers.end() - 1, Layer{"per_stream", {}});
  return layers;
}

}  // namespace

ProgramMemory::ProgramMemory(std::vector<Layer> layers, int ordinal, std::optional<Size> limit,
                             bool poison)
    : layers_(safe_between_streams(std::move(layers))),
      poison_(poison),
      device_(ordinal, limit),
      allocator_(make(layers_, device_)) {
  stats_.gpu_free_at_start = stats_.gpu_free_least = device_.free_bytes().value_or(0);
}

Address ProgramMemory::allocate(Size size, cuda::Stream stream, std::string& failure) {
  if (size == 0) return 0;
  std::uint64_t const begin = Timer::now();
  std::scoped_lock const guard(mutex_);
  Size const peak = stats_.totals.reserved.gauge.peak;
  process_cuda_events();
  Graph* const graph = graph_of(stream);
  Address address = request(graph, size, stream);
  if (address == 0 && wait_for_cuda_events()) address = request(graph, size, stream);
  if (address == 0 && returned_by_graphs()) address = request(graph, size, stream);
  if (address == 0) {
    ++stats_.failures;
    failure = describe(graph, size);
  }
  stats_.alloc.add(Timer::now() - begin);
  if (stats_.totals.reserved.gauge.peak > peak) sample_gpu_free_bytes();
  return address;
}

bool ProgramMemory::deallocate(Address address) {
  if (address == 0) return true;
  std::uint64_t const begin = Timer::now();
  std::scoped_lock const guard(mutex_);
  if (device_.closed()) return true;
  auto const entry = live_.find(address);
  if (entry == live_.end() || entry->second.freed) return false;
  Live& live = entry->second;
  process_cuda_events();
  stats_.totals.allocated.subtract(live.size);
  stats_.totals.allocated_blocks.subtract(1);
  if (live.used_on.empty()) {
    free_block(address);
  } else {
    ++stats_.deferred;
    live.freed = true;
    if (captures_.empty())
      record_cuda_events(address, live);
    else
      unrecorded_.push_back(address);
  }
  stats_.free.add(Timer::now() - begin);
  return true;
}

void ProgramMemory::use_on(Address address, cuda::Stream stream) {
  std::scoped_lock const guard(mutex_);
  auto const entry = live_.find(address);
  if (entry == live_.end()) return;
  auto& used_on = entry->second.used_on;
  for (CudaDevice::StreamName const& name : device_.names_of(stream))
    if (name != entry->second.stream && std::ranges::find(used_on, name) == used_on.end())
      used_on.push_back(name);
}

void ProgramMemory::trim() {
  std::scoped_lock const guard(mutex_);
  if (!captures_.empty()) return;
  wait_for_cuda_events();
  try {
    allocator_->trim();
    trim_graphs();
  } catch (DeviceError const&) {
    // The device keeps the memory that it failed to free; its `close` reports the failure.
  }
}

void ProgramMemory::step() {
  std::scoped_lock const guard(mutex_);
  allocator_->step();
}

void ProgramMemory::reset_peaks() {
  std::scoped_lock const guard(mutex_);
  allocator_->reset_peaks();
  count_reserved();
  for_each_total([](Flow& flow) { flow.gauge.peak = flow.gauge.current; });
}

void ProgramMemory::reset_counts() {
  std::scoped_lock const guard(mutex_);
  count_reserved();
  for_each_total([](Flow& flow) { flow.gained = flow.lost = 0; });
}

void ProgramMemory::close() {
  std::scoped_lock const guard(mutex_);
  captures_.clear();
  wait_for_cuda_events();
  try {
    allocator_->check_sums();
  } catch (InvariantViolation const&) {
    device_.close();
    throw;
  }
  device_.close();
}

std::pair<Address, Size> ProgramMemory::segment_of(Address address) const {
  try {
    auto const place = device_.locate(address);
    return {address - place.offset, place.size};
  } catch (BadFree const&) {
    return {0, 0};
  }
}

void ProgramMemory::begin_capture(GraphPool pool, Captured captured) {
  std::scoped_lock const guard(mutex_);
  Graph& graph = graphs_[pool];
  if (!graph.memory) graph.memory = std::make_unique<GraphMemory>(device_);
  ++graph.users;
  captures_.push_back({pool, std::move(captured)});
  device_.keep_memory(true);
}

void ProgramMemory::end_capture(GraphPool pool) {
  std::scoped_lock const guard(mutex_);
  auto const capture = std::ranges::find(captures_, pool, &Capture::pool);
  if (capture != captures_.end()) captures_.erase(capture);
  finish_captures();
}

void ProgramMemory::release(GraphPool pool) {
  std::scoped_lock const guard(mutex_);
  auto const graph = graphs_.find(pool);
  if (graph == graphs_.end()) return;
  if (--graph->second.users <= 0) {
    // A failed capture may be released without having been ended.
    std::erase_if(captures_, [pool](Capture const& capture) { return capture.pool == pool; });
    graph->second.memory->release();
  }
  finish_captures();
}

ProgramMemory::ProgramStats ProgramMemory::stats() const {
  std::scoped_lock const guard(mutex_);
  ProgramStats stats = stats_;
  stats.totals.reserved.set(device_.reserved());
  stats.totals.graphs.set(graph_bytes());
  stats.waiting = unrecorded_.size();
  for (auto const& [address, live] : live_) stats.waiting += live.cuda_events > 0;
  return stats;
}

ProgramMemory::Graph* ProgramMemory::graph_of(cuda::Stream stream) {
  for (Capture const& capture : captures_)
    if (capture.captured(stream)) return &graphs_[capture.pool];
  return nullptr;
}

Allocator& ProgramMemory::allocator_of(Graph* graph) {
  return graph == nullptr ? *allocator_ : graph->memory->allocator();
}

Address ProgramMemory::request(Graph* graph, Size size, cuda::Stream stream) {
  if (device_.closed()) return 0;
  Stream const number = device_.number(stream);
  Block const block = allocator_of(graph).try_allocate(size, number);
  if (block.size == 0) return 0;
  if (graph != nullptr) ++graph->blocks;
  live_.emplace(block.address,
                Live{graph, device_.name_of(stream), number, block.size, block.requested, {}});
  Totals& totals = stats_.totals;
  totals.requested.add(block.requested);
  for (Flow* flow : {&totals.allocated, &totals.active}) flow->add(block.size);
  for (Flow* flow : {&totals.allocated_blocks, &totals.active_blocks}) flow->add(1);
  count_reserved();
  return block.address;
}

// Not part of the latency of a request, because an allocator does not need it.
void ProgramMemory::sample_gpu_free_bytes() {
  if (!captures_.empty()) return;
  Size& least = stats_.gpu_free_least;
  least = std::min(least, device_.free_bytes().value_or(least));
}

void ProgramMemory::count_reserved() {
  stats_.totals.reserved.set(device_.reserved());
  if (!graphs_.empty() || stats_.totals.graphs.gauge.current > 0)
    stats_.totals.graphs.set(graph_bytes());
}

Size ProgramMemory::graph_bytes() const {
  Size bytes = 0;
  for (auto const& [pool, graph] : graphs_)
    if (graph.memory) bytes += graph.memory->reserved();
  return bytes;
}

template <class Visit>
void ProgramMemory::for_each_total(Visit visit) {
  Totals& all = stats_.totals;
  for (Flow* flow : {&all.requested, &all.allocated, &all.active, &all.reserved, &all.graphs,
                     &all.allocated_blocks, &all.active_blocks})
    visit(*flow);
}

// Waits for all events and frees their blocks. False if there was no event, and during a capture,
// which the wait would make invalid.
bool ProgramMemory::wait_for_cuda_events() {
  if (!captures_.empty()) return false;
  process_cuda_events();
  bool any = false;
  for (auto& [stream, queue] : events_)
    for (auto const& [event, address] : queue) {
      device_.wait(event);
      any = true;
    }
  process_cuda_events();
  stats_.retries += any;
  return any;
}

// Returns the memory of released graphs to the device; true if there was any. The strategy has
// already trimmed its own memory.
bool ProgramMemory::returned_by_graphs() {
  if (!captures_.empty()) return false;
  Size const before = device_.reserved();
  try {
    trim_graphs();
  } catch (DeviceError const&) {
    // The retry fails if it needs the memory that the device failed to free.
  }
  bool const returned = device_.reserved() < before;
  stats_.retries += returned;
  return returned;
}

// Trims the memory of released graphs.
void ProgramMemory::trim_graphs() {
  for (auto& [pool, graph] : graphs_)
    if (graph.users <= 0) graph.memory->allocator().trim();
}

// Frees the blocks whose events are done.
void ProgramMemory::process_cuda_events() {
  if (!captures_.empty()) return;
  for (Address const address : std::exchange(unrecorded_, {}))
    record_cuda_events(address, live_.at(address));
  for (auto& [stream, queue] : events_)
    while (!queue.empty() && device_.done(queue.front().first)) {
      auto const [event, address] = queue.front();
      queue.pop_front();
      device_.destroy(event);
      if (--live_.at(address).cuda_events == 0) free_block(address);
    }
}

void ProgramMemory::record_cuda_events(Address address, Live& live) {
  for (CudaDevice::StreamName const& stream : live.used_on)
    if (cuda::Event const event = device_.record(stream)) {
      ++live.cuda_events;
      events_[stream].emplace_back(event, address);
    } else {
      device_.synchronize(stream.context);  // no event could be recorded
    }
  if (live.cuda_events == 0) free_block(address);
}

void ProgramMemory::free_block(Address address) {
  auto const entry = live_.find(address);
  Live const live = std::move(entry->second);
  live_.erase(entry);
  Graph* const graph = live.graph;
  // Memory of a graph is not poisoned, because a launch of the graph may be using it.
  if (poison_ && graph == nullptr && captures_.empty())
    device_.fill(address, live.size, kPoison, live.number);
  allocator_of(graph).try_deallocate(address, live.number);
  Totals& totals = stats_.totals;
  totals.requested.subtract(live.requested);
  totals.active.subtract(live.size);
  totals.active_blocks.subtract(1);
  if (graph == nullptr) return;
  --graph->blocks;
  drop_idle_graphs();
}

void ProgramMemory::finish_captures() {
  if (!captures_.empty()) return;
  device_.keep_memory(false);
  drop_idle_graphs();
}

void ProgramMemory::drop_idle_graphs() {
  if (!captures_.empty()) return;
  std::erase_if(graphs_,
                [](auto const& item) { return item.second.users <= 0 && item.second.blocks == 0; });
}

std::string ProgramMemory::describe(Graph* graph, Size size) {
  if (device_.closed())
    return "cuda:" + std::to_string(device_.ordinal()) + " is closed: the process is ending";
  std::string text = allocator_of(graph).describe_failure(size);
  auto const add = [&text](std::string const& line) { text.append("\n").append(line); };
  if (auto const failure = device_.take_failure()) add(*failure);
  if (graph != nullptr) add("the request belongs to a graph that is being captured");
  if (!captures_.empty())
    add("during a capture, no memory can be returned to the GPU or moved to serve a request");
  if (!graphs_.empty())
    add(human_bytes(graph_bytes()) + " are reserved for " + std::to_string(graphs_.size()) +
        (graphs_.size() == 1 ? " graph" : " graphs"));
  if (auto const free = device_.free_bytes()) {
    std::string line = device_.name();
    line.append(": free ").append(human_bytes(*free)).append(" of ");
    add(line.append(human_bytes(device_.total()))
            .append(", with the memory of all processes counted"));
  }
  return text;
}

namespace {

std::vector<Program const*>& started_programs() {
  static auto* const all = new std::vector<Program const*>;
  return *all;
}

// Throws SpecError for an allocator that no device can run. Uses no GPU, because the program has
// not chosen one yet.
void check(std::vector<Layer> const& layers, std::optional<Size> limit) {
  SimulatedDevice device(limit.value_or(Size{1} << 40), SimulatedDevice::kDefaultAlignment, {}, {});
  try {
    make(layers, device);
  } catch (Unavailable const&) {
    // Reported when the GPU is opened.
  }
}

// Nobody can catch an exception at exit, so a broken rule is shown.
void close_all() {
  for (Program const* program : started_programs())
    program->for_each([](ProgramMemory& memory) {
      try {
        memory.close();
      } catch (InvariantViolation const& violation) {
        std::fprintf(stderr, "allocbench: %s\n", violation.what());
      }
    });
}

// Closes all memories at exit. Exit functions run in reverse order of registration, and events must
// be destroyed before the devices close, so this must be called after the first device is opened.
void close_at_exit() {
  static bool const registered = std::atexit(close_all) == 0;
  if (!registered) throw DeviceError("the program cannot register another function to run at exit");
}

}  // namespace

Program& Program::start(std::vector<Layer> layers, std::optional<Size> limit, bool poison) {
  check(layers, limit);
  std::unique_ptr<Program> program(new Program(std::move(layers), limit, poison));
  started_programs().push_back(program.get());
  return *program.release();  // never deleted: see Program in program.hpp
}

ProgramMemory& Program::on(int ordinal) {
  if (ordinal < 0 || ordinal >= kMostDevices)
    throw SpecError("there is no CUDA device " + std::to_string(ordinal));
  if (ProgramMemory* const memory = find(ordinal)) return *memory;
  std::scoped_lock const guard(mutex_);
  auto& memory = memory_[static_cast<std::size_t>(ordinal)];
  if (memory == nullptr) {
    memory = new ProgramMemory(layers_, ordinal, limit_, poison_);
    close_at_exit();
  }
  return *memory;
}

ProgramMemory* Program::find(int ordinal) const {
  if (ordinal < 0 || ordinal >= kMostDevices) return nullptr;
  return memory_[static_cast<std::size_t>(ordinal)];
}

void Program::for_each(std::function<void(ProgramMemory&)> const& call) const {
  for (int ordinal = 0; ordinal < kMostDevices; ++ordinal)
    if (ProgramMemory* const memory = find(ordinal)) call(*memory);
}

}  // namespace allocbench

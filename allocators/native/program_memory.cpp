// program_memory.cpp: the memory of a running program on one GPU.
// SPDX-License-Identifier: Apache-2.0
#include "program_memory.hpp"

#include <algorithm>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace allocbench {
namespace {

constexpr unsigned char kPoison = 0xFF;

std::vector<Layer> safe_between_streams(std::vector<Layer> layers) {
  require(!layers.empty(), "an allocator has at least one layer");
  bool const apart =
      strategy(layers.back().name).by_stream ||
      std::ranges::any_of(layers, [](Layer const& layer) { return layer.name == "per_stream"; });
  if (!apart) layers.insert(layers.end() - 1, Layer{"per_stream", {}});
  return layers;
}

}  // namespace

ProgramMemory::ProgramMemory(std::vector<Layer> layers, int ordinal, std::optional<Size> limit,
                             bool poison)
    : layers_(safe_between_streams(std::move(layers))),
      poison_(poison),
      device_(ordinal, limit),
      allocator_(make(layers_, device_)) {
  seen_.gpu_free_at_start = seen_.gpu_free_least = device_.free_bytes().value_or(0);
}

Address ProgramMemory::allocate(Size size, cuda::Stream stream, std::string& failure) {
  if (size == 0) return 0;
  std::uint64_t const begin = Timer::now();
  std::scoped_lock const guard(mutex_);
  Size const peak = seen_.totals.reserved.now.peak;
  settle();
  Graph* const graph = graph_of(stream);
  Address address = request(graph, size, stream);
  if (address == 0 && wait_for_events()) address = request(graph, size, stream);
  if (address == 0 && trim_others()) address = request(graph, size, stream);
  if (address == 0) {
    ++seen_.failures;
    failure = describe(graph, size);
  }
  seen_.alloc.add(Timer::now() - begin);
  if (seen_.totals.reserved.now.peak > peak) note_free_bytes();
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
  settle();
  seen_.totals.allocated.subtract(live.size);
  seen_.totals.allocated_blocks.subtract(1);
  if (live.used_on.empty()) {
    give_back(address);
  } else {
    ++seen_.deferred;
    live.freed = true;
    if (captures_.empty())
      record(address, live);
    else
      unrecorded_.push_back(address);
  }
  seen_.free.add(Timer::now() - begin);
  return true;
}

void ProgramMemory::use_on(Address address, cuda::Stream stream) {
  std::scoped_lock const guard(mutex_);
  auto const found = live_.find(address);
  if (found == live_.end()) return;
  auto& used_on = found->second.used_on;
  for (CudaDevice::StreamName const& name : device_.names_of(stream))
    if (name != found->second.stream && std::ranges::find(used_on, name) == used_on.end())
      used_on.push_back(name);
}

void ProgramMemory::trim() {
  std::scoped_lock const guard(mutex_);
  if (!captures_.empty()) return;
  wait_for_events();
  try {
    allocator_->trim();
    trim_graphs();
  } catch (DeviceError const&) {
    // Memory that the GPU does not take back stays with the device, whose close reports it.
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
  each_total([](Flow& flow) { flow.now.peak = flow.now.current; });
}

void ProgramMemory::reset_counts() {
  std::scoped_lock const guard(mutex_);
  count_reserved();
  each_total([](Flow& flow) { flow.gained = flow.lost = 0; });
}

void ProgramMemory::close() {
  std::scoped_lock const guard(mutex_);
  captures_.clear();
  wait_for_events();
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
  auto const last = std::ranges::find(captures_, pool, &Capture::pool);
  if (last != captures_.end()) captures_.erase(last);
  captures_ended();
}

void ProgramMemory::release(GraphPool pool) {
  std::scoped_lock const guard(mutex_);
  auto const found = graphs_.find(pool);
  if (found == graphs_.end()) return;
  if (--found->second.users <= 0) {
    // A capture that failed may have been released without an end.
    std::erase_if(captures_, [pool](Capture const& each) { return each.pool == pool; });
    found->second.memory->release();
  }
  captures_ended();
}

ProgramMemory::Seen ProgramMemory::seen() const {
  std::scoped_lock const guard(mutex_);
  Seen seen = seen_;
  seen.totals.reserved.set(device_.reserved());
  seen.totals.graphs.set(graph_bytes());
  seen.waiting = unrecorded_.size();
  for (auto const& [address, live] : live_) seen.waiting += live.events > 0;
  return seen;
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
  Totals& totals = seen_.totals;
  totals.requested.add(block.requested);
  for (Flow* flow : {&totals.allocated, &totals.active}) flow->add(block.size);
  for (Flow* flow : {&totals.allocated_blocks, &totals.active_blocks}) flow->add(1);
  count_reserved();
  return block.address;
}

// Outside of the time that a request took: it is no part of what an allocator does.
void ProgramMemory::note_free_bytes() {
  if (!captures_.empty()) return;
  Size& least = seen_.gpu_free_least;
  least = std::min(least, device_.free_bytes().value_or(least));
}

void ProgramMemory::count_reserved() {
  seen_.totals.reserved.set(device_.reserved());
  if (!graphs_.empty() || seen_.totals.graphs.now.current > 0)
    seen_.totals.graphs.set(graph_bytes());
}

Size ProgramMemory::graph_bytes() const {
  Size bytes = 0;
  for (auto const& [pool, graph] : graphs_)
    if (graph.memory) bytes += graph.memory->reserved();
  return bytes;
}

template <class Reset>
void ProgramMemory::each_total(Reset reset) {
  Totals& all = seen_.totals;
  for (Flow* flow : {&all.requested, &all.allocated, &all.active, &all.reserved, &all.graphs,
                     &all.allocated_blocks, &all.active_blocks})
    reset(*flow);
}

// Was there anything to wait for? Not while a graph is captured, which waiting would break.
bool ProgramMemory::wait_for_events() {
  if (!captures_.empty()) return false;
  settle();
  bool any = false;
  for (auto& [stream, queue] : events_)
    for (auto const& [event, address] : queue) {
      device_.wait(event);
      any = true;
    }
  settle();
  seen_.retries += any;
  return any;
}

// Did graphs that are gone leave anything? The strategy has tried its own memory.
bool ProgramMemory::trim_others() {
  if (!captures_.empty()) return false;
  Size const before = device_.reserved();
  try {
    trim_graphs();
  } catch (DeviceError const&) {
    // The request fails if that memory is what it lacks.
  }
  bool const more = device_.reserved() < before;
  seen_.retries += more;
  return more;
}

// What graphs have left that are gone.
void ProgramMemory::trim_graphs() {
  for (auto& [pool, graph] : graphs_)
    if (graph.users <= 0) graph.memory->allocator().trim();
}

// Blocks whose events are done become free.
void ProgramMemory::settle() {
  if (!captures_.empty()) return;
  for (Address const address : std::exchange(unrecorded_, {})) record(address, live_.at(address));
  for (auto& [stream, queue] : events_)
    while (!queue.empty() && device_.done(queue.front().first)) {
      auto const [event, address] = queue.front();
      queue.pop_front();
      device_.destroy(event);
      if (--live_.at(address).events == 0) give_back(address);
    }
}

void ProgramMemory::record(Address address, Live& live) {
  for (CudaDevice::StreamName const& stream : live.used_on)
    if (cuda::Event const event = device_.record(stream)) {
      ++live.events;
      events_[stream].emplace_back(event, address);
    } else {
      device_.synchronize(stream.context);  // no event could be had
    }
  if (live.events == 0) give_back(address);
}

void ProgramMemory::give_back(Address address) {
  auto const found = live_.find(address);
  Live const live = std::move(found->second);
  live_.erase(found);
  Graph* const graph = live.graph;
  // The memory of a graph is its own: a replay may be using it.
  if (poison_ && graph == nullptr && captures_.empty())
    device_.fill(address, live.size, kPoison, live.number);
  allocator_of(graph).try_deallocate(address, live.number);
  Totals& totals = seen_.totals;
  totals.requested.subtract(live.requested);
  totals.active.subtract(live.size);
  totals.active_blocks.subtract(1);
  if (graph == nullptr) return;
  --graph->blocks;
  drop_idle_graphs();
}

void ProgramMemory::captures_ended() {
  if (!captures_.empty()) return;
  device_.keep_memory(false);
  drop_idle_graphs();
}

void ProgramMemory::drop_idle_graphs() {
  if (!captures_.empty()) return;
  std::erase_if(graphs_,
                [](auto const& each) { return each.second.users <= 0 && each.second.blocks == 0; });
}

std::string ProgramMemory::describe(Graph* graph, Size size) {
  if (device_.closed())
    return "cuda:" + std::to_string(device_.ordinal()) + " is closed: the process is ending";
  std::string text = allocator_of(graph).describe_failure(size);
  auto const add = [&text](std::string const& line) { text.append("\n").append(line); };
  if (auto const failure = device_.take_failure()) add(*failure);
  if (graph != nullptr) add("the request is one of a graph being captured");
  if (!captures_.empty())
    add("while a graph is captured, no memory can be given back or moved to serve a request");
  if (!graphs_.empty())
    add(human_bytes(graph_bytes()) + " are reserved for " + std::to_string(graphs_.size()) +
        (graphs_.size() == 1 ? " graph" : " graphs"));
  if (auto const free = device_.free_bytes()) {
    std::string line = device_.name();
    line.append(": free ").append(human_bytes(*free)).append(" of ");
    add(line.append(human_bytes(device_.total())).append(", all processes included"));
  }
  return text;
}

}  // namespace allocbench

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
  settle();
  Graph* const graph = graph_of(stream);
  Address address = request(graph, size, stream);
  if (address == 0 && wait_for_events()) address = request(graph, size, stream);
  if (address == 0 && trim_others(graph)) address = request(graph, size, stream);
  if (address == 0) {
    ++seen_.failures;
    failure = describe(graph, size);
  }
  seen_.alloc.add(Timer::now() - begin);
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
  auto const entry = live_.find(address);
  if (entry == live_.end() || entry->second.stream == stream) return;
  auto& used_on = entry->second.used_on;
  if (std::ranges::find(used_on, stream) == used_on.end()) used_on.push_back(stream);
}

void ProgramMemory::trim() {
  std::scoped_lock const guard(mutex_);
  wait_for_events();
  try {
    allocator_->trim();
    for (auto& [pool, graph] : graphs_) graph.allocator->trim();
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
  for (auto& [pool, graph] : graphs_) graph.allocator->reset_peaks();
}

void ProgramMemory::close() {
  std::scoped_lock const guard(mutex_);
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
  if (!graph.allocator) graph.allocator = make(layers_, device_);
  ++graph.users;
  captures_.push_back({pool, std::move(captured)});
}

void ProgramMemory::end_capture(GraphPool pool) {
  std::scoped_lock const guard(mutex_);
  auto const last = std::ranges::find(captures_, pool, &Capture::pool);
  if (last != captures_.end()) captures_.erase(last);
}

void ProgramMemory::release(GraphPool pool) {
  std::scoped_lock const guard(mutex_);
  auto const entry = graphs_.find(pool);
  if (entry == graphs_.end()) return;
  --entry->second.users;
  drop_idle_graphs();
}

ProgramMemory::Seen ProgramMemory::seen() const {
  std::scoped_lock const guard(mutex_);
  Seen seen = seen_;
  seen.waiting = unrecorded_.size();
  for (auto const& [address, live] : live_) seen.waiting += live.events > 0;
  return seen;
}

ProgramMemory::Graph* ProgramMemory::graph_of(cuda::Stream stream) {
  for (Capture const& capture : captures_)
    if (capture.captured(stream)) return &graphs_[capture.pool];
  return nullptr;
}

Address ProgramMemory::request(Graph* graph, Size size, cuda::Stream stream) {
  if (device_.closed()) return 0;
  Stream const number = device_.number(stream);
  Allocator& allocator = graph == nullptr ? *allocator_ : *graph->allocator;
  Block const block = allocator.try_allocate(size, number);
  if (block.size == 0) return 0;
  if (graph != nullptr) ++graph->blocks;
  live_.emplace(block.address, Live{graph, stream, number, {}});
  if (Size const reserved = device_.reserved(); reserved > peak_ && captures_.empty()) {
    peak_ = reserved;
    seen_.gpu_free_least =
        std::min(seen_.gpu_free_least, device_.free_bytes().value_or(seen_.gpu_free_least));
  }
  return block.address;
}

// True if there was an event to wait for. Never waits during a capture, which waiting would break.
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

// True if trimming the other allocators (of the program and of graphs) returned any memory.
bool ProgramMemory::trim_others(Graph const* graph) {
  Size const before = device_.reserved();
  try {
    if (graph != nullptr) allocator_->trim();
    for (auto& [pool, other] : graphs_)
      if (&other != graph) other.allocator->trim();
  } catch (DeviceError const&) {
    // As in trim(). The request fails if it needs the memory that was not returned.
  }
  bool const more = device_.reserved() < before;
  seen_.retries += more;
  return more;
}

// Frees the blocks whose events have finished.
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
  for (cuda::Stream const stream : live.used_on)
    if (cuda::Event const event = device_.record(stream)) {
      ++live.events;
      events_[stream].emplace_back(event, address);
    } else {
      device_.synchronize();  // no event could be created
    }
  if (live.events == 0) give_back(address);
}

void ProgramMemory::give_back(Address address) {
  auto const entry = live_.find(address);
  auto const [graph, stream, number, used_on, events, freed] = entry->second;
  live_.erase(entry);
  Allocator& allocator = graph == nullptr ? *allocator_ : *graph->allocator;
  if (poison_ && captures_.empty())
    device_.fill(address, allocator.try_deallocate(address, number).size, kPoison, stream);
  else
    allocator.try_deallocate(address, number);
  if (graph == nullptr) return;
  --graph->blocks;
  drop_idle_graphs();
}

void ProgramMemory::drop_idle_graphs() {
  std::erase_if(graphs_,
                [](auto const& each) { return each.second.users <= 0 && each.second.blocks == 0; });
}

std::string ProgramMemory::describe(Graph* graph, Size size) {
  if (device_.closed())
    return "cuda:" + std::to_string(device_.ordinal()) + " is closed: the process is ending";
  Allocator const& allocator = graph == nullptr ? *allocator_ : *graph->allocator;
  std::string text = allocator.describe_failure(size);
  auto const add = [&text](std::string const& line) { text.append("\n").append(line); };
  if (auto const failure = device_.take_failure()) add(*failure);
  if (graph != nullptr) add("the request was made while a graph was being captured");
  if (!graphs_.empty()) add(std::to_string(graphs_.size()) + " graphs hold memory of their own");
  if (auto const free = device_.free_bytes()) {
    std::string line = device_.name();
    line.append(": free ").append(human_bytes(*free)).append(" of ");
    add(line.append(human_bytes(device_.total())).append(", all processes included"));
  }
  return text;
}

}  // namespace allocbench

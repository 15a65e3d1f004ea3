// native/held_streams.cpp: streams whose work does not end, for tests.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/held_streams.hpp"

#include <algorithm>
#include <utility>

namespace allocbench::null_gpu {

namespace {

Handle const kLegacyStream = reinterpret_cast<Handle>(1);
Handle const kPerThreadStream = reinterpret_cast<Handle>(2);

std::uint64_t this_thread() {
  static std::atomic<std::uint64_t> threads = 0;
  static thread_local std::uint64_t const number = ++threads;
  return number;
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
    if ((other == queue || waited_for) && state.ended < state.queued) {
      work.emplace_back(other, state.queued);
    }
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
  for (auto& [queue, state] : queues_) {
    if (queue.device == device) state.ended = state.queued;
  }
}

void HeldStreams::end_all(Queue const& queue) {
  if (auto const entry = queues_.find(queue); entry != queues_.end()) {
    entry->second.ended = entry->second.queued;
  }
}

bool HeldStreams::busy(Queue const& queue) const {
  auto const entry = queues_.find(queue);
  return entry != queues_.end() && entry->second.ended < entry->second.queued;
}

}  // namespace allocbench::null_gpu

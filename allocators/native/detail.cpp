// detail.cpp: what a replay records for charts: peaks, device calls and free blocks by size.
// SPDX-License-Identifier: Apache-2.0
#include "detail.hpp"

#include <algorithm>
#include <bit>

namespace allocbench {
namespace {

constexpr std::array<Size Level::*, 3> kFields{&Level::requested, &Level::allocated,
                                               &Level::reserved};

std::size_t part(std::size_t events, std::size_t parts) {
  return std::max<std::size_t>(1, events / std::max<std::size_t>(1, parts));
}

}  // namespace

DetailRecorder::DetailRecorder(Allocator& allocator, std::size_t events, std::size_t samples)
    : allocator_(allocator),
      interval_(part(events, samples)),
      look_interval_(part(events, samples / 4)) {
  static_assert(kFields.size() == kKinds);
  allocator_.device().take_calls();
  allocator_.device().keep_calls(true);
}

DetailRecorder::~DetailRecorder() { allocator_.device().keep_calls(false); }

void DetailRecorder::level(std::size_t event, Stats const& stats) {
  Level const now{event, stats.requested.current, stats.allocated.current, stats.reserved.current};
  if (event >= until_) {
    close_interval();
    until_ = event - event % interval_ + interval_;
  }
  if (lowest_.empty()) {
    lowest_.assign(kKinds, now);
    highest_.assign(kKinds, now);
    return;
  }
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    auto const field = kFields[kind];
    if (now.*field < lowest_[kind].*field) lowest_[kind] = now;
    if (now.*field > highest_[kind].*field) highest_[kind] = now;
  }
}

void DetailRecorder::after(std::size_t event) {
  last_ = event;
  for (Device::Call const& call : allocator_.device().take_calls())
    found_.device_calls.push_back({event, static_cast<std::uint8_t>(call.kind), call.refused,
                                   call.address, call.size, call.seconds});
  if (event < next_look_) return;
  next_look_ = event + look_interval_;
  look_at_free_blocks(event);
}

void DetailRecorder::close_interval() {
  std::vector<Level>& ends = lowest_;
  ends.insert(ends.end(), highest_.begin(), highest_.end());
  std::ranges::sort(ends, {}, &Level::event);
  auto const same = std::ranges::unique(ends, {}, &Level::event);
  found_.envelope.insert(found_.envelope.end(), ends.begin(), same.begin());
  lowest_.clear();
  highest_.clear();
}

void DetailRecorder::look_at_free_blocks(std::size_t event) {
  std::array<FreeClass, 64> classes{};
  for (Segment const& segment : allocator_.snapshot())
    for (Block const& block : segment.blocks) {
      if (block.allocated() || block.size == 0) continue;
      FreeClass& free_class = classes[static_cast<std::size_t>(std::bit_width(block.size)) - 1];
      ++free_class.blocks;
      free_class.bytes += block.size;
    }
  for (std::size_t n = 0; n < classes.size(); ++n)
    if (classes[n].blocks > 0)
      found_.free_blocks.push_back(
          {event, static_cast<std::uint8_t>(n), classes[n].blocks, classes[n].bytes});
}

Detail DetailRecorder::result() {
  close_interval();
  if (next_look_ > 0 && next_look_ != last_ + look_interval_) look_at_free_blocks(last_);
  return std::move(found_);
}

}  // namespace allocbench

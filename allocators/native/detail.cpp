// detail.cpp: records data for charts during a replay: peaks, device calls, free blocks by size.
// SPDX-License-Identifier: Apache-2.0
#include "detail.hpp"

#include <algorithm>
#include <bit>

namespace allocbench {
namespace {

constexpr std::array<Size Level::*, 3> kFields{&Level::requested, &Level::allocated,
                                               &Level::reserved};

std::size_t interval(std::size_t events, std::size_t samples) {
  return std::max<std::size_t>(1, events / std::max<std::size_t>(1, samples));
}

}  // namespace

DetailRecorder::DetailRecorder(Allocator& allocator, std::size_t events, std::size_t samples)
    : allocator_(allocator),
      interval_(interval(events, samples)),
      free_interval_(interval(events, samples / 4)) {
  static_assert(kFields.size() == kKinds);
  allocator_.device().take_calls();
  allocator_.device().keep_calls(true);
}

DetailRecorder::~DetailRecorder() { allocator_.device().keep_calls(false); }

void DetailRecorder::record_level(std::size_t event, Stats const& stats) {
  Level const level{event, stats.requested.current, stats.allocated.current,
                    stats.reserved.current};
  if (event >= next_interval_) {
    close_interval();
    next_interval_ = event - event % interval_ + interval_;
  }
  if (lowest_.empty()) {
    lowest_.assign(kKinds, level);
    highest_.assign(kKinds, level);
    return;
  }
  for (std::size_t kind = 0; kind < kKinds; ++kind) {
    auto const field = kFields[kind];
    if (level.*field < lowest_[kind].*field) lowest_[kind] = level;
    if (level.*field > highest_[kind].*field) highest_[kind] = level;
  }
}

void DetailRecorder::after(std::size_t event) {
  last_ = event;
  for (Device::Call const& call : allocator_.device().take_calls())
    detail_.device_calls.push_back({event, static_cast<std::uint8_t>(call.kind), call.refused,
                                    call.address, call.size, call.seconds});
  if (event < next_sample_) return;
  next_sample_ = event + free_interval_;
  sample_free_blocks(event);
}

void DetailRecorder::close_interval() {
  std::vector<Level>& ends = lowest_;
  ends.insert(ends.end(), highest_.begin(), highest_.end());
  std::ranges::sort(ends, {}, &Level::event);
  auto const duplicates = std::ranges::unique(ends, {}, &Level::event);
  detail_.envelope.insert(detail_.envelope.end(), ends.begin(), duplicates.begin());
  lowest_.clear();
  highest_.clear();
}

void DetailRecorder::sample_free_blocks(std::size_t event) {
  std::array<FreeClass, 64> classes{};
  for (Segment const& segment : allocator_.snapshot())
    for (Block const& block : segment.blocks) {
      if (block.allocated() || block.size == 0) continue;
      FreeClass& free_class = classes[static_cast<std::size_t>(std::bit_width(block.size)) - 1];
      ++free_class.blocks;
      free_class.bytes += block.size;
    }
  for (std::size_t size_class = 0; size_class < classes.size(); ++size_class)
    if (FreeClass const& free_class = classes[size_class]; free_class.blocks > 0)
      detail_.free_blocks.push_back(
          {event, static_cast<std::uint8_t>(size_class), free_class.blocks, free_class.bytes});
}

Detail DetailRecorder::result() {
  close_interval();
  if (next_sample_ > 0 && next_sample_ != last_ + free_interval_) sample_free_blocks(last_);
  return std::move(detail_);
}

}  // namespace allocbench

// replay.cpp: replays a trace through an allocator to measure, time or try it.
// SPDX-License-Identifier: Apache-2.0
#include "replay.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "replay_pass.hpp"
#include "timer.hpp"

namespace allocbench {
namespace {

double ratio(Size part, Size whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

class MeasuringPass : public Pass {
 public:
  MeasuringPass(TraceView const& trace, Allocator& allocator, std::size_t samples,
                PlacementSink const& placements, bool detail)
      : Pass(trace, allocator),
        stride_(std::max<std::size_t>(1, trace.events / std::max<std::size_t>(1, samples))),
        placements_(placements),
        fragments_(allocator.info().keeps_free_blocks) {
    if (detail) detail_.emplace(allocator, trace.events, samples);
  }

  std::size_t begin() {
    requested_.resize(blocks());
    std::size_t const adopted = Pass::begin();
    std::size_t event = 0;
    if (adopted > 0)
      for (HeldSegment const& held : trace_.layout)
        for (Block const& block : held.segment.blocks) {
          record_alloc(event, block);
          after(event++);
        }
    return adopted;
  }

  bool alloc(std::size_t event) {
    record_alloc(event, allocate(event));
    return true;
  }

  bool free(std::size_t event) {
    deallocate(event);
    load_ -= requested_[part_.block[event]];
    observe(event);
    return true;
  }

  void begin_step() { ++step_; }

  void after(std::size_t event) {
    if (detail_) detail_->after(in_trace(event));
  }

  Measurement result() {
    if (placements_) placements_(batch_);
    measurement_.stats = allocator_.stats();
    measurement_.device = allocator_.device().stats();
    measurement_.counters = allocator_.counters();
    if (events_ > 0)
      measurement_.internal_fragmentation_mean = internal_ / static_cast<double>(events_);
    if (fragments_) measurement_.external_fragmentation_mean = mean_external_fragmentation();
    if (detail_) measurement_.detail = detail_->result();
    return std::move(measurement_);
  }

 private:
  static constexpr std::size_t kPlacementsAtOnce = 1 << 16;

  void record_alloc(std::size_t event, Block const& block) {
    load_ += part_.size[event];
    measurement_.max_load = std::max(measurement_.max_load, load_);
    requested_[part_.block[event]] = part_.size[event];
    if (placements_) place(event, block);
    if (detail_) detail_->record_placement(block);
    observe(event);
  }

  double mean_external_fragmentation() const {
    double sum = 0;
    for (Moment const& moment : measurement_.timeline) {
      Size const free = moment.reserved - moment.allocated;
      sum += ratio(free - moment.largest_free, free);
    }
    return measurement_.timeline.empty() ? 0
                                         : sum / static_cast<double>(measurement_.timeline.size());
  }

  void place(std::size_t event, Block const& granted) {
    BlockPlacement placement{part_.id_at(event), -1, -1, granted.size, part_.size[event], step_};
    if (granted.size != 0) {
      auto const place = allocator_.device().locate(granted.address);
      placement.segment = place.segment;
      placement.offset = static_cast<std::int64_t>(place.offset);
    }
    batch_.push_back(placement);
    if (batch_.size() < kPlacementsAtOnce) return;
    placements_(batch_);
    batch_.clear();
  }

  void observe(std::size_t in_part) {
    std::size_t const event = in_trace(in_part);
    Stats const stats = allocator_.stats();
    ++events_;
    if (detail_) detail_->record_level(event, stats);
    internal_ += ratio(stats.allocated.current - stats.requested.current, stats.allocated.current);
    bool const is_sample = event % stride_ == 0 || event + 1 == trace_.events;
    bool const is_peak = stats.reserved.current > measurement_.peak.reserved;
    if (!is_sample && !is_peak) return;
    Moment const moment{event, stats.requested.current, stats.allocated.current,
                        stats.reserved.current, fragments_ ? allocator_.largest_free() : 0};
    if (is_peak) measurement_.peak = moment;
    if (is_sample) measurement_.timeline.push_back(moment);
  }

  std::vector<Size> requested_;  // bytes, by block
  std::size_t stride_;
  PlacementSink const& placements_;
  std::vector<BlockPlacement> batch_;
  bool fragments_;  // false: external fragmentation does not apply
  Size load_ = 0;
  std::uint64_t step_ = 0;  // steps that have begun
  std::uint64_t events_ = 0;
  double internal_ = 0;  // sum of the internal fragmentation after each event
  std::optional<DetailRecorder> detail_;
  Measurement measurement_;
};

class TimingPass : public Pass {
 public:
  using Pass::Pass;

  std::size_t begin() {
    auto const count = [&](Op op) {
      return static_cast<std::size_t>(std::ranges::count(part_.op, static_cast<std::uint8_t>(op)));
    };
    latencies_.alloc.reserve(count(Op::kAlloc));
    latencies_.free.reserve(count(Op::kFree));
    return Pass::begin();
  }

  bool alloc(std::size_t event) {
    std::uint64_t const begin = Timer::now();
    allocate(event);
    latencies_.alloc.push_back(timer_.seconds(begin, Timer::now()));
    return true;
  }

  bool free(std::size_t event) {
    std::uint64_t const begin = Timer::now();
    deallocate(event);
    latencies_.free.push_back(timer_.seconds(begin, Timer::now()));
    return true;
  }

  Latencies take() { return std::exchange(latencies_, {}); }
  double timer_seconds() const { return timer_.cost_seconds(); }

 private:
  Timer timer_;
  Latencies latencies_;
};

class TrialPass : public Pass {
 public:
  using Pass::Pass;

  std::size_t begin() { return end = Pass::begin(); }

  bool alloc(std::size_t event) {
    end = event + 1;
    if (allocate(event).size != 0) return true;
    failing = in_trace(event);
    return false;
  }

  std::optional<std::size_t> failing;  // the event
  std::size_t end = 0;                 // one past the last alloc in the current part
};

}  // namespace

Measurement measure(TraceView const& trace, Allocator& allocator, std::size_t samples,
                    PlacementSink const& placements, bool keep, bool detail) {
  MeasuringPass pass(trace, allocator, samples, placements, detail);
  run(pass);
  Measurement measurement;
  or_free(pass, [&] { measurement = pass.result(); });
  if (!keep) pass.free_the_rest();
  return measurement;
}

double time_pass(TraceView const& trace, Allocator& allocator) {
  using Clock = std::chrono::steady_clock;
  Pass pass(trace, allocator);
  std::size_t events = 0;
  std::chrono::duration<double> seconds{0};
  or_free(pass, [&] {
    while (pass.next_part()) {
      std::size_t const first = pass.begin();
      auto const begin = Clock::now();
      play(pass, first);
      seconds += Clock::now() - begin;
      events += pass.part().events() - first;
    }
  });
  pass.free_the_rest();
  return events == 0 ? 0 : seconds.count() / static_cast<double>(events);
}

double time_each(TraceView const& trace, Allocator& allocator, LatencySink const& sink) {
  TimingPass pass(trace, allocator);
  or_free(pass, [&] {
    while (pass.next_part()) {
      play(pass, pass.begin());
      sink(pass.take());
    }
  });
  pass.free_the_rest();
  return pass.timer_seconds();
}

std::optional<std::size_t> failing_event(TraceView const& trace, Allocator& allocator) {
  TrialPass pass(trace, allocator);
  run(pass);
  pass.free_the_rest(pass.end);
  return pass.failing;
}

}  // namespace allocbench

// replay.cpp: replays a trace through an allocator to measure, time or try it.
// SPDX-License-Identifier: Apache-2.0
#include "replay.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <string>

#include "timer.hpp"

namespace allocbench {
namespace {

void apply(Change const& change, Allocator& allocator) {
  if (change.trim) allocator.trim();
  if (change.settings) allocator.change_settings(*change.settings);
  if (change.memory_fraction) allocator.change_memory_fraction(*change.memory_fraction);
}

// Replays the events from `first` on. `pass.alloc(event)` and `pass.free(event)` return false to
// stop the replay.
template <class Pass>
void play(TraceView const& trace, Allocator& allocator, Pass& pass, std::size_t first) {
  auto change = trace.changes.begin();
  for (std::size_t event = first; event < trace.events(); ++event) {
    for (; change != trace.changes.end() && change->event <= event; ++change)
      apply(*change, allocator);
    bool proceed = true;
    switch (static_cast<Op>(trace.op[event])) {
      case Op::kAlloc:
        proceed = pass.alloc(event);
        break;
      case Op::kFree:
        proceed = pass.free(event);
        break;
      case Op::kMark:
        if (trace.block[event] == trace.step_label) allocator.step();
        break;
      case Op::kTrim:
        allocator.trim(trace.pool_at(event));
        break;
      default:
        allocator.pool_event(static_cast<Op>(trace.op[event]), trace.pool_at(event));
        break;
    }
    if constexpr (requires { pass.after(event); }) pass.after(event);
    if (!proceed) return;
  }
}

// Does the work of a pass. If it fails, frees all blocks before the exception goes on; if that
// fails too, as it can after a violated invariant, the first exception is the one that matters.
template <class Pass, class Work>
void or_free(Pass& pass, Work work) {
  try {
    work();
  } catch (...) {
    try {
      pass.free_the_rest();
    } catch (std::exception const&) {
    }
    throw;
  }
}

template <class Pass>
void run(TraceView const& trace, Allocator& allocator, Pass& pass, std::size_t first) {
  or_free(pass, [&] { play(trace, allocator, pass, first); });
}

// The address of a block whose request failed, which is alive in the trace but not in the
// allocator. No real block has an odd address.
constexpr Address kFailed = 1;

// The base class of all passes: knows the address of each live block by its id.
class Plain {
 public:
  Plain(TraceView const& trace, Allocator& allocator)
      : trace_(trace),
        allocator_(allocator),
        address_(check_arrays(trace)),
        pool_(trace.pool.empty() ? 0 : address_.size()) {}

  // Prepares the allocator and returns the first event to replay. If the allocator adopts the
  // layout of the trace, the allocs of its blocks are skipped.
  std::size_t begin() {
    allocator_.describe_pools(trace_.pools);
    if (trace_.layout.empty() || !allocator_.adopt(trace_.layout)) return 0;
    std::size_t event = 0;
    for (HeldSegment const& held : trace_.layout)
      for (Block const& block : held.segment.blocks) {
        address_[trace_.block[event]] = block.address;
        remember_pool(event++);
      }
    return event;
  }

  Block allocate(std::size_t event) {
    Address& address = address_[trace_.block[event]];
    if (address != 0)
      bad_trace(event, "block " + std::to_string(trace_.block[event]) + " is alive");
    remember_pool(event);
    Block const block = allocator_.try_allocate(trace_.size[event], stream_of(event));
    address = block.size == 0 ? kFailed : block.address;
    return block;
  }

  void deallocate(std::size_t event) {
    Address& address = address_[trace_.block[event]];
    if (address == 0)
      bad_trace(event, "block " + std::to_string(trace_.block[event]) + " is not alive");
    if (address != kFailed) allocator_.deallocate(address, stream_of(event));
    address = 0;
  }

  bool alloc(std::size_t event) {
    allocate(event);
    return true;
  }
  bool free(std::size_t event) {
    deallocate(event);
    return true;
  }

  // Frees each live block on the stream of its alloc, the latest first. The allocs of all of them
  // are before `end`.
  void free_the_rest(std::size_t end) {
    auto live = std::ranges::count_if(address_, [](Address address) { return address != 0; });
    for (std::size_t event = end; live > 0;) {
      if (static_cast<Op>(trace_.op[--event]) != Op::kAlloc) continue;
      Address& address = address_[trace_.block[event]];
      if (address == 0) continue;
      if (address != kFailed) allocator_.deallocate(address, stream_of(event));
      address = 0;
      --live;
    }
    allocator_.deallocate(0);  // throws if the device has failed
  }
  void free_the_rest() { free_the_rest(trace_.events()); }

 protected:
  std::size_t blocks() const { return address_.size(); }

  TraceView const& trace_;
  Allocator& allocator_;

 private:
  // With the pool of the block, which is that of its last alloc.
  Stream stream_of(std::size_t event) const {
    Stream const stream = trace_.stream[event];
    return pool_.empty() ? stream : in_pool(stream, pool_[trace_.block[event]]);
  }
  void remember_pool(std::size_t event) {
    if (!pool_.empty()) pool_[trace_.block[event]] = trace_.pool[event];
  }

  std::vector<Address> address_;     // by block
  std::vector<std::uint16_t> pool_;  // by block; empty when the trace has no pools
};

double ratio(Size part, Size whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

class MeasuringPass : public Plain {
 public:
  MeasuringPass(TraceView const& trace, Allocator& allocator, std::size_t samples,
                PlacementSink const& placements, bool detail)
      : Plain(trace, allocator),
        requested_(blocks()),
        stride_(std::max<std::size_t>(1, trace.events() / std::max<std::size_t>(1, samples))),
        placements_(placements),
        fragments_(allocator.info().keeps_free_blocks) {
    if (detail) detail_.emplace(allocator, trace.events(), samples);
  }

  std::size_t begin() {
    std::size_t const adopted = Plain::begin();
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
    load_ -= requested_[trace_.block[event]];
    observe(event);
    return true;
  }

  void after(std::size_t event) {
    if (detail_) detail_->after(event);
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
    load_ += trace_.size[event];
    measurement_.max_load = std::max(measurement_.max_load, load_);
    requested_[trace_.block[event]] = trace_.size[event];
    if (placements_) place(trace_.block[event], block);
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

  void place(std::uint32_t block, Block const& granted) {
    BlockPlacement placement{block, -1, -1, granted.size};
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

  void observe(std::size_t event) {
    Stats const stats = allocator_.stats();
    ++events_;
    if (detail_) detail_->record_level(event, stats);
    internal_ += ratio(stats.allocated.current - stats.requested.current, stats.allocated.current);
    bool const is_sample = event % stride_ == 0 || event + 1 == trace_.events();
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
  std::uint64_t events_ = 0;
  double internal_ = 0;  // sum of the internal fragmentation after each event
  std::optional<DetailRecorder> detail_;
  Measurement measurement_;
};

class TimingPass : public Plain {
 public:
  TimingPass(TraceView const& trace, Allocator& allocator) : Plain(trace, allocator) {
    auto const count = [&](Op op) {
      return static_cast<std::size_t>(std::ranges::count(trace.op, static_cast<std::uint8_t>(op)));
    };
    latencies_.alloc.reserve(count(Op::kAlloc));
    latencies_.free.reserve(count(Op::kFree));
    latencies_.timer_seconds = timer_.cost_seconds();
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

  Latencies result() { return std::move(latencies_); }

 private:
  Timer timer_;
  Latencies latencies_;
};

class TrialPass : public Plain {
 public:
  using Plain::Plain;

  std::size_t begin() { return end = Plain::begin(); }

  bool alloc(std::size_t event) {
    end = event + 1;
    return completed = allocate(event).size != 0;
  }

  bool completed = true;
  std::size_t end = 0;  // one past the last alloc
};

}  // namespace

Measurement measure(TraceView const& trace, Allocator& allocator, std::size_t samples,
                    PlacementSink const& placements, bool keep, bool detail) {
  MeasuringPass pass(trace, allocator, samples, placements, detail);
  Measurement measurement;
  or_free(pass, [&] {
    play(trace, allocator, pass, pass.begin());
    measurement = pass.result();
  });
  if (!keep) pass.free_the_rest();
  return measurement;
}

double time_pass(TraceView const& trace, Allocator& allocator) {
  using Clock = std::chrono::steady_clock;
  Plain pass(trace, allocator);
  std::size_t const first = pass.begin();
  auto const begin = Clock::now();
  run(trace, allocator, pass, first);
  std::chrono::duration<double> const seconds = Clock::now() - begin;
  pass.free_the_rest();
  std::size_t const events = trace.events() - first;
  return events == 0 ? 0 : seconds.count() / static_cast<double>(events);
}

Latencies time_each(TraceView const& trace, Allocator& allocator) {
  TimingPass pass(trace, allocator);
  run(trace, allocator, pass, pass.begin());
  pass.free_the_rest();
  return pass.result();
}

bool completes(TraceView const& trace, Allocator& allocator) {
  TrialPass pass(trace, allocator);
  run(trace, allocator, pass, pass.begin());
  pass.free_the_rest(pass.end);
  return pass.completed;
}

}  // namespace allocbench

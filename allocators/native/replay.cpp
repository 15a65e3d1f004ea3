// replay.cpp: a trace run through an allocator: measured, timed, or just tried.
// SPDX-License-Identifier: Apache-2.0
#include "replay.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>

#include "timer.hpp"

namespace allocbench {
namespace {

[[noreturn]] void bad_trace(std::size_t event, std::string const& rule) {
  throw std::invalid_argument("not a trace: event " + std::to_string(event) + ": " + rule);
}

std::size_t count_blocks(TraceView const& trace) {
  std::size_t const events = trace.events();
  if (trace.block.size() != events || trace.size.size() != events || trace.stream.size() != events)
    throw std::invalid_argument("not a trace: the arrays differ in length");
  std::size_t blocks = 0;
  double bytes = 0;
  for (std::size_t at = 0; at < events; ++at) {
    if (trace.op[at] > static_cast<std::uint8_t>(Op::kTrim))
      bad_trace(at, "unknown op " + std::to_string(trace.op[at]));
    if (trace.op[at] > static_cast<std::uint8_t>(Op::kFree)) continue;
    if (trace.block[at] >= events)
      bad_trace(at, "block " + std::to_string(trace.block[at]) + " is out of range");
    blocks = std::max<std::size_t>(blocks, trace.block[at] + 1);
    if (trace.op[at] == static_cast<std::uint8_t>(Op::kAlloc))
      bytes += static_cast<double>(trace.size[at]);
  }
  if (bytes >= 0x1p63) throw std::invalid_argument("not a trace: its allocs exceed 2^63 bytes");
  return blocks;
}

// The replay loop. A pass has `alloc(event)` and `free(event)`, both of which may stop the
// replay by returning false.
template <class Pass>
void play(TraceView const& trace, Allocator& allocator, Pass& pass) {
  for (std::size_t at = 0; at < trace.events(); ++at) {
    bool go_on = true;
    switch (static_cast<Op>(trace.op[at])) {
      case Op::kAlloc:
        go_on = pass.alloc(at);
        break;
      case Op::kFree:
        go_on = pass.free(at);
        break;
      case Op::kMark:
        if (trace.block[at] == trace.step_label) allocator.step();
        break;
      case Op::kTrim:
        allocator.trim();
        break;
    }
    if constexpr (requires { pass.after(at); }) pass.after(at);
    if (!go_on) return;
  }
}

// The same, and no block is left behind when the trace turns out to be none.
template <class Pass>
void run(TraceView const& trace, Allocator& allocator, Pass& pass) {
  try {
    play(trace, allocator, pass);
  } catch (...) {
    pass.free_the_rest();
    throw;
  }
}

// A block whose request failed: alive in the trace, but not in the allocator. No block begins at
// an odd address.
constexpr Address kFailed = 1;

// What every pass does: remember the address of each block that is alive, by its id.
class Plain {
 public:
  Plain(TraceView const& trace, Allocator& allocator)
      : trace_(trace), allocator_(allocator), address_(count_blocks(trace)) {}

  Block allocate(std::size_t at) {
    Address& address = address_[trace_.block[at]];
    if (address != 0) bad_trace(at, "block " + std::to_string(trace_.block[at]) + " is alive");
    Block const block = allocator_.try_allocate(trace_.size[at], trace_.stream[at]);
    address = block.size == 0 ? kFailed : block.address;
    return block;
  }

  void deallocate(std::size_t at) {
    Address& address = address_[trace_.block[at]];
    if (address == 0) bad_trace(at, "block " + std::to_string(trace_.block[at]) + " is not alive");
    if (address != kFailed) allocator_.deallocate(address, trace_.stream[at]);
    address = 0;
  }

  bool alloc(std::size_t at) {
    allocate(at);
    return true;
  }
  bool free(std::size_t at) {
    deallocate(at);
    return true;
  }

  // Each on the stream of its alloc, which is the last one of its id.
  void free_the_rest() {
    for (std::size_t at = trace_.events(); at-- > 0;)
      if (static_cast<Op>(trace_.op[at]) == Op::kAlloc) {
        Address& address = address_[trace_.block[at]];
        if (address != kFailed) allocator_.deallocate(address, trace_.stream[at]);
        address = 0;
      }
  }

 protected:
  std::size_t blocks() const { return address_.size(); }

  TraceView const& trace_;
  Allocator& allocator_;

 private:
  std::vector<Address> address_;
};

double ratio(Size part, Size whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

class Measuring : public Plain {
 public:
  Measuring(TraceView const& trace, Allocator& allocator, std::size_t samples,
            PlacementSink const& placements, bool detail)
      : Plain(trace, allocator),
        requested_(blocks()),
        stride_(std::max<std::size_t>(1, trace.events() / std::max<std::size_t>(1, samples))),
        placements_(placements),
        fragments_(allocator.info().keeps_free_blocks) {
    if (detail) detail_.emplace(allocator, trace.events(), samples);
  }

  bool alloc(std::size_t at) {
    Block const block = allocate(at);
    load_ += trace_.size[at];
    found_.max_load = std::max(found_.max_load, load_);
    requested_[trace_.block[at]] = trace_.size[at];
    if (placements_) place(trace_.block[at], block);
    if (detail_) detail_->placed(block);
    observe(at);
    return true;
  }

  bool free(std::size_t at) {
    deallocate(at);
    load_ -= requested_[trace_.block[at]];
    observe(at);
    return true;
  }

  void after(std::size_t at) {
    if (detail_) detail_->after(at);
  }

  Measurement result() {
    if (placements_) placements_(placed_);
    found_.stats = allocator_.stats();
    found_.device = allocator_.device().stats();
    found_.counters = allocator_.counters();
    if (events_ > 0) found_.internal_fragmentation_mean = internal_ / static_cast<double>(events_);
    if (fragments_) found_.external_fragmentation_mean = mean_external_fragmentation();
    if (detail_) found_.detail = detail_->result();
    return std::move(found_);
  }

 private:
  static constexpr std::size_t kPlacementsAtOnce = 1 << 16;

  double mean_external_fragmentation() const {
    double sum = 0;
    for (Moment const& moment : found_.timeline) {
      Size const free = moment.reserved - moment.allocated;
      sum += ratio(free - moment.largest_free, free);
    }
    return found_.timeline.empty() ? 0 : sum / static_cast<double>(found_.timeline.size());
  }

  void place(std::uint32_t block, Block const& granted) {
    Placed placed{block, -1, -1, granted.size};
    if (granted.size != 0) {
      auto const place = allocator_.device().locate(granted.address);
      placed.segment = place.segment;
      placed.offset = static_cast<std::int64_t>(place.offset);
    }
    placed_.push_back(placed);
    if (placed_.size() < kPlacementsAtOnce) return;
    placements_(placed_);
    placed_.clear();
  }

  void observe(std::size_t at) {
    Stats const stats = allocator_.stats();
    ++events_;
    if (detail_) detail_->level(at, stats);
    internal_ += ratio(stats.allocated.current - stats.requested.current, stats.allocated.current);
    bool const sampled = at % stride_ == 0 || at + 1 == trace_.events();
    bool const higher = stats.reserved.current > found_.peak.reserved;
    if (!sampled && !higher) return;
    Moment const moment{at, stats.requested.current, stats.allocated.current,
                        stats.reserved.current, fragments_ ? allocator_.largest_free() : 0};
    if (higher) found_.peak = moment;
    if (sampled) found_.timeline.push_back(moment);
  }

  std::vector<Size> requested_;  // by block
  std::size_t stride_;
  PlacementSink const& placements_;
  std::vector<Placed> placed_;
  bool fragments_;  // else external fragmentation does not apply
  Size load_ = 0;
  std::uint64_t events_ = 0;
  double internal_ = 0;
  std::optional<DetailRecorder> detail_;
  Measurement found_;
};

class TimingEach : public Plain {
 public:
  TimingEach(TraceView const& trace, Allocator& allocator) : Plain(trace, allocator) {
    auto const is = [](Op op) { return static_cast<std::uint8_t>(op); };
    found_.alloc.reserve(static_cast<std::size_t>(std::ranges::count(trace.op, is(Op::kAlloc))));
    found_.free.reserve(static_cast<std::size_t>(std::ranges::count(trace.op, is(Op::kFree))));
    found_.timer_seconds = timer_.cost_seconds();
  }

  bool alloc(std::size_t at) {
    std::uint64_t const begin = Timer::now();
    allocate(at);
    found_.alloc.push_back(timer_.seconds(begin, Timer::now()));
    return true;
  }

  bool free(std::size_t at) {
    std::uint64_t const begin = Timer::now();
    deallocate(at);
    found_.free.push_back(timer_.seconds(begin, Timer::now()));
    return true;
  }

  Latencies result() { return std::move(found_); }

 private:
  Timer timer_;
  Latencies found_;
};

class Trying : public Plain {
 public:
  using Plain::Plain;
  bool alloc(std::size_t at) { return completed = allocate(at).size != 0; }

  bool completed = true;
};

}  // namespace

Measurement measure(TraceView const& trace, Allocator& allocator, std::size_t samples,
                    PlacementSink const& placements, bool keep, bool detail) {
  Measuring pass(trace, allocator, samples, placements, detail);
  run(trace, allocator, pass);
  Measurement found = pass.result();
  if (!keep) pass.free_the_rest();
  return found;
}

double time_pass(TraceView const& trace, Allocator& allocator) {
  using Clock = std::chrono::steady_clock;
  Plain pass(trace, allocator);
  auto const begin = Clock::now();
  run(trace, allocator, pass);
  std::chrono::duration<double> const seconds = Clock::now() - begin;
  pass.free_the_rest();
  return trace.events() == 0 ? 0 : seconds.count() / static_cast<double>(trace.events());
}

Latencies time_each(TraceView const& trace, Allocator& allocator) {
  TimingEach pass(trace, allocator);
  run(trace, allocator, pass);
  pass.free_the_rest();
  return pass.result();
}

bool completes(TraceView const& trace, Allocator& allocator) {
  Trying pass(trace, allocator);
  run(trace, allocator, pass);
  pass.free_the_rest();
  return pass.completed;
}

}  // namespace allocbench

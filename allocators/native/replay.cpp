// replay.cpp: replays a trace through an allocator to measure, time or try it.
// SPDX-License-Identifier: Apache-2.0
#include "replay.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <ranges>
#include <stdexcept>
#include <utility>

#include "core/huge_pages.hpp"
#include "timer.hpp"

namespace allocbench {
namespace {

// Throws std::invalid_argument that names the event and the rule that it breaks.
[[noreturn]] void bad_trace(std::size_t event, std::string const& rule) {
  throw std::invalid_argument("not a valid trace: event " + std::to_string(event) + ": " + rule);
}

// Checks what can be checked without a replay: lengths, ops, block numbers and the sum of the
// sizes.
class PartChecks {
 public:
  explicit PartChecks(TraceView const& trace) : trace_(trace) {}

  // Checks the next part, whose first event is the event `first` of the trace. Returns a number
  // above all block numbers of the part. Throws as bad_trace does.
  std::size_t check(TracePart const& part, std::size_t first) {
    std::size_t const events = part.events();
    if (part.block.size() != events || part.size.size() != events || part.stream.size() != events ||
        (!part.pool.empty() && part.pool.size() != events) ||
        (!part.id.empty() && part.id.size() != events))
      throw std::invalid_argument("not a valid trace: the arrays differ in length");
    if (events == 0 || events > trace_.events - first)
      throw std::invalid_argument("not a valid trace: its parts do not have " +
                                  std::to_string(trace_.events) + " events in all");
    // Masks instead of branches: a replay that stops early takes hardly longer than these loops.
    std::uint8_t highest_op = 0;
    std::uint32_t highest_block = 0;
    for (std::size_t event = 0; event < events; ++event) {
      std::uint8_t const op = part.op[event];
      std::uint32_t const has_block = op <= static_cast<std::uint8_t>(Op::kFree);
      highest_op = std::max(highest_op, op);
      highest_block = std::max(highest_block, part.block[event] & -has_block);
    }
    std::uint64_t low = 0, high = 0;
    for (std::size_t event = 0; event < events; ++event) {
      std::uint64_t const has_size = part.op[event] == static_cast<std::uint8_t>(Op::kAlloc);
      std::uint64_t const size = part.size[event] & -has_size;
      low += size & 0xffffffff;
      high += size >> 32;
    }
    low_ += low;
    high_ += high;
    if (highest_op > static_cast<std::uint8_t>(Op::kPoolRelease) || highest_block >= trace_.events)
      find_bad_event(part, first);
    if (first == 0) {
      std::size_t block = 0;
      for (HeldSegment const& held : trace_.layout)
        for (std::size_t n = 0; n < held.segment.blocks.size(); ++n, ++block)
          if (block >= events || part.op[block] != static_cast<std::uint8_t>(Op::kAlloc))
            bad_trace(block, "is not the alloc of a block of the layout");
    }
    if (high_ + (low_ >> 32) >= std::uint64_t{1} << 31)
      throw std::invalid_argument("not a valid trace: its allocs add up to 2^63 bytes or more");
    return std::size_t{highest_block} + 1;
  }

 private:
  void find_bad_event(TracePart const& part, std::size_t first) const {
    for (std::size_t event = 0; event < part.events(); ++event) {
      if (part.op[event] > static_cast<std::uint8_t>(Op::kPoolRelease))
        bad_trace(first + event, "unknown op " + std::to_string(part.op[event]));
      if (part.op[event] <= static_cast<std::uint8_t>(Op::kFree) &&
          part.block[event] >= trace_.events)
        bad_trace(first + event, "block " + std::to_string(part.id_at(event)) + " is out of range");
    }
  }

  TraceView const& trace_;
  std::uint64_t low_ = 0, high_ = 0;  // sums of the lower and upper halves of the sizes
};

// The base class of all passes over a trace: knows the address of each live block by its number.
// Events are counted from the first one of the current part, except where a name says otherwise.
class Pass {
 public:
  Pass(TraceView const& trace, Allocator& allocator)
      : trace_(trace), allocator_(allocator), checks_(trace), change_(trace.changes.begin()) {}

  // Fetches the next part; false after the last one.
  bool next_part() {
    if (first_ + part_.events() == trace_.events) return false;
    carry_live_blocks();
    first_ += part_.events();
    part_ = {};  // its arrays end with the next call
    TracePart const next = trace_.next();
    std::size_t const blocks = std::max(address_.size(), checks_.check(next, first_));
    address_.resize(blocks);
    if (!next.pool.empty()) pool_.resize(blocks);
    part_ = next;
    return true;
  }

  // Call it for each part. Prepares the allocator for the first part. Returns the first event to
  // replay: if the allocator adopts the layout of the trace, the allocs of its blocks are skipped.
  std::size_t begin() {
    if (first_ > 0) return 0;
    pools().describe_pools(trace_.pools);
    auto* const takes_over = dynamic_cast<TakesOver*>(&allocator_);
    if (trace_.layout.empty() || takes_over == nullptr || !takes_over->adopt(trace_.layout))
      return 0;
    std::size_t event = 0;
    for (HeldSegment const& held : trace_.layout)
      for (Block const& block : held.segment.blocks) {
        address_[part_.block[event]] = block.address;
        remember_pool(event++);
      }
    return event;
  }

  Block allocate(std::size_t event) {
    Address& address = address_[part_.block[event]];
    if (address != 0) bad_block(event, " is alive");
    remember_pool(event);
    Block const block = allocator_.try_allocate(part_.size[event], stream_of(event));
    address = block.size == 0 ? kFailed : block.address;
    return block;
  }

  void deallocate(std::size_t event) {
    Address& address = address_[part_.block[event]];
    if (address == 0) bad_block(event, " is not alive");
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

  // Frees each live block on the stream of its alloc, the latest first. The allocs of those that
  // began in the current part are before `end`.
  void free_the_rest(std::size_t end) {
    auto live = std::ranges::count_if(address_, [](Address address) { return address != 0; });
    auto const free_block = [&](std::uint32_t block, Stream stream) {
      Address& address = address_[block];
      if (address == 0) return;
      if (address != kFailed) allocator_.deallocate(address, stream);
      address = 0;
      --live;
    };
    for (std::size_t event = end; live > 0 && event-- > 0;)
      if (static_cast<Op>(part_.op[event]) == Op::kAlloc)
        free_block(part_.block[event], stream_of(event));
    for (Carried const& old : carried_ | std::views::reverse) free_block(old.block, old.stream);
    allocator_.deallocate(0);  // throws if the device has failed
  }

  void free_the_rest() { free_the_rest(part_.events()); }

  void trim(PoolId pool) { pool == 0 ? allocator_.trim() : pools().trim_pool(pool); }

  // Makes the changes before `event` and returns the event before which the next one is made.
  std::size_t make_changes(std::size_t event) {
    for (; change_ != trace_.changes.end() && change_->event <= in_trace(event); ++change_) {
      if (change_->trim) allocator_.trim();
      if (change_->settings) live_settings(allocator_).change_settings(*change_->settings);
      if (change_->memory_fraction)
        live_settings(allocator_).change_memory_fraction(*change_->memory_fraction);
    }
    bool const none = change_ == trace_.changes.end();
    return none ? std::numeric_limits<std::size_t>::max() : change_->event - first_;
  }

  TraceView const& trace() const { return trace_; }
  TracePart const& part() const { return part_; }
  Allocator& allocator() const { return allocator_; }
  ServesPools& pools() const { return serving_pools(allocator_); }

 protected:
  std::size_t in_trace(std::size_t event) const { return first_ + event; }
  std::size_t blocks() const { return address_.size(); }

  TraceView const& trace_;
  Allocator& allocator_;
  TracePart part_;

 private:
  // The address of a block whose request failed, which is alive in the trace but not in the
  // allocator. No real block has an odd address.
  static constexpr Address kFailed = 1;

  struct Carried {
    std::uint32_t block;
    Stream stream;  // with the pool
  };

  [[noreturn]] void bad_block(std::size_t event, char const* rule) const {
    bad_trace(in_trace(event), "block " + std::to_string(part_.id_at(event)) + rule);
  }

  // With the pool of the block, which is that of its last alloc.
  Stream stream_of(std::size_t event) const {
    Stream const stream = part_.stream[event];
    return pool_.empty() ? stream : in_pool(stream, pool_[part_.block[event]]);
  }
  void remember_pool(std::size_t event) {
    if (!pool_.empty()) pool_[part_.block[event]] = part_.pool[event];
  }
  // A block that was carried so far is carried on unless the part frees it.
  void carry_live_blocks() {
    is_carried_.resize(blocks());
    for (std::size_t event = 0; event < part_.events(); ++event)
      if (static_cast<Op>(part_.op[event]) == Op::kFree) is_carried_[part_.block[event]] = false;
    std::erase_if(carried_, [&](Carried const& old) { return !is_carried_[old.block]; });
    auto const old = static_cast<std::ptrdiff_t>(carried_.size());
    for (std::size_t event = part_.events(); event-- > 0;) {
      std::uint32_t const block = part_.block[event];
      if (static_cast<Op>(part_.op[event]) != Op::kAlloc) continue;
      if (address_[block] == 0 || is_carried_[block]) continue;
      carried_.push_back({block, stream_of(event)});
      is_carried_[block] = true;
    }
    std::ranges::reverse(carried_.begin() + old, carried_.end());
  }

  PartChecks checks_;
  std::vector<Change>::const_iterator change_;  // the next one
  std::size_t first_ = 0;                       // event of the trace with which the part begins
  LargeArray<Address> address_;                 // by block
  std::vector<std::uint16_t> pool_;             // by block; empty when the trace has no pools
  std::vector<Carried> carried_;                // alive since an earlier part, in order of allocs
  std::vector<std::uint8_t> is_carried_;        // by block
};

// Replays the events of the current part from `first` on. `pass.alloc(event)` and
// `pass.free(event)` return false to stop the replay; then this does too.
template <class P>
bool play(P& pass, std::size_t first) {
  TracePart const& part = pass.part();
  Allocator& allocator = pass.allocator();
  std::int64_t const step_label = pass.trace().step_label;
  std::size_t next_change = first;
  for (std::size_t event = first; event < part.events(); ++event) {
    if (event >= next_change) [[unlikely]]
      next_change = pass.make_changes(event);
    bool proceed = true;
    switch (static_cast<Op>(part.op[event])) {
      case Op::kAlloc: proceed = pass.alloc(event); break;
      case Op::kFree: proceed = pass.free(event); break;
      case Op::kMark:
        if (part.block[event] == step_label) {
          if constexpr (requires { pass.begin_step(); }) pass.begin_step();
          allocator.step();
        }
        break;
      case Op::kTrim: pass.trim(part.pool_at(event)); break;
      default: pass.pools().pool_event(static_cast<Op>(part.op[event]), part.pool_at(event)); break;
    }
    if constexpr (requires { pass.after(event); }) pass.after(event);
    if (!proceed) return false;
  }
  return true;
}

// Does the work of a pass. If it fails, frees all blocks before the exception goes on; if that
// fails too, as it can after a violated invariant, the first exception is the one that matters.
template <class P, class Work>
void or_free(P& pass, Work work) {
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

// Replays all parts, until one stops the replay.
template <class P>
void run(P& pass) {
  or_free(pass, [&] {
    while (pass.next_part())
      if (!play(pass, pass.begin())) return;
  });
}

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

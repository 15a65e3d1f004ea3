// timer.hpp: a clock with enough resolution to time a single call, and a histogram of such times.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace allocbench {

// Measures in ticks. On x86-64 a tick is one count of the time stamp counter, which is read between
// fences so that surrounding work cannot be reordered across the reading. On other processors it is
// a nanosecond of steady_clock.
class Timer {
 public:
  Timer() : seconds_per_tick_(tick()), cost_(reading_cost()) {}

  static std::uint64_t now() {
#if defined(__x86_64__)
    _mm_lfence();
    std::uint64_t const ticks = __rdtsc();
    _mm_lfence();
    return ticks;
#else
    return nanoseconds();
#endif
  }

  // Seconds between two readings, minus the cost of a reading; at least 0.
  float seconds(std::uint64_t begin, std::uint64_t end) const {
    std::uint64_t const ticks = end - begin;
    return static_cast<float>(static_cast<double>(ticks > cost_ ? ticks - cost_ : 0) *
                              seconds_per_tick_);
  }

  double seconds_of(std::uint64_t ticks) const {  // without subtracting the cost of a reading
    return static_cast<double>(ticks) * seconds_per_tick_;
  }
  double cost_seconds() const { return static_cast<double>(cost_) * seconds_per_tick_; }

 private:
  static std::uint64_t nanoseconds() {
    auto const time = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
  }

  static double tick() {  // seconds; measured once, because that takes two milliseconds
    static double const seconds = calibrate();
    return seconds;
  }

  static double calibrate() {
    constexpr std::uint64_t kTwoMilliseconds = 2'000'000;
    std::uint64_t const begin = nanoseconds();
    std::uint64_t const first = now();
    std::uint64_t end = begin;
    while (end - begin < kTwoMilliseconds) end = nanoseconds();
    return static_cast<double>(end - begin) * 1e-9 / static_cast<double>(now() - first);
  }

  // The median over pairs of consecutive readings.
  static std::uint64_t reading_cost() {
    std::array<std::uint64_t, 1001> ticks;
    for (auto& tick : ticks) {
      std::uint64_t const begin = now();
      tick = now() - begin;
    }
    auto const middle = ticks.begin() + ticks.size() / 2;
    std::nth_element(ticks.begin(), middle, ticks.end());
    return *middle;
  }

  double seconds_per_tick_;
  std::uint64_t cost_;
};

// Counts durations (in ticks of Timer) in 32 buckets per power of two. A percentile is at most 1/32
// too high; mean and maximum are exact. Takes 16 KiB for any number of calls. Not thread-safe.
class Latency {
 public:
  void add(std::uint64_t ticks) {
    ++count_;
    sum_ += ticks;
    max_ = std::max(max_, ticks);
    ++counts_[index(ticks)];
  }

  std::uint64_t count() const { return count_; }
  double mean() const { return count_ == 0 ? 0 : seconds(sum_) / static_cast<double>(count_); }
  double max() const { return seconds(max_); }

  // The seconds that a share (0 to 1) of the calls does not exceed.
  double percentile(double share) const {
    auto remaining = static_cast<double>(count_) * share;
    for (std::size_t bucket = 0; bucket < counts_.size(); ++bucket) {
      remaining -= static_cast<double>(counts_[bucket]);
      if (counts_[bucket] != 0 && remaining <= 0) return seconds(std::min(max_, top(bucket)));
    }
    return max();
  }

 private:
  static constexpr int kBits = 5;

  static std::size_t index(std::uint64_t ticks) {
    int const shift = std::max(0, static_cast<int>(std::bit_width(ticks)) - kBits - 1);
    return (static_cast<std::size_t>(shift) << kBits) + (ticks >> shift);
  }
  static std::uint64_t top(std::size_t bucket) {
    if (bucket < (2u << kBits)) return bucket;
    std::size_t const shift = (bucket >> kBits) - 1;
    std::uint64_t const lead = (bucket & ((1u << kBits) - 1)) + (1u << kBits);
    return ((lead + 1) << shift) - 1;
  }
  static double seconds(std::uint64_t ticks) {
    static Timer const timer;
    return timer.seconds_of(ticks);
  }

  std::uint64_t count_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t max_ = 0;
  std::array<std::uint64_t, (64 - kBits + 1) << kBits> counts_{};
};

}  // namespace allocbench

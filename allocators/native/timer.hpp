// timer.hpp: a clock with enough resolution to time a single allocation.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
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
  Timer() : seconds_per_tick_(calibrate()), cost_(reading_cost()) {}

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

}  // namespace allocbench

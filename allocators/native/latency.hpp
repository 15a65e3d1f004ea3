// latency.hpp: a histogram of call latencies.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "timer.hpp"

namespace allocbench {

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

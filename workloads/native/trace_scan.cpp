// trace_scan.cpp: what the features of a trace need, counted in one reading of its events.
// SPDX-License-Identifier: Apache-2.0
#include "trace_scan.hpp"

#include <algorithm>
#include <utility>

namespace allocbench {

void TraceScan::add(TracePart const& part) {
  for (std::size_t n = 0; n < part.events(); ++n, ++events) {
    Op const op{part.op[n]};
    std::uint32_t const block = part.block[n];
    Wide const load = load_.after(op, block, part.size[n]);
    if (op <= Op::kFree) streams_[part.stream[n]] = true;
    if (op == Op::kAlloc) {
      if (block >= begin_.size()) begin_.resize(std::size_t{block} + 1);
      begin_[block] = events + 1;
      ++live_;
      ++step_allocs_;
      sizes.add(part.size[n]);
      if (steps > 0) step_sizes_.add(part.size[n]);
    } else if (op == Op::kFree && block < begin_.size()) {
      lifetimes.add(events + 1 - std::exchange(begin_[block], 0));
      --live_;
    } else if (op == Op::kMark && block == step_label_) {
      end_step();
      ++steps;
    }
    live_peak = std::max(live_peak, live_);
    live_sum += live_;
    load_sum += load;
    if (load > load_max) {
      load_max = load;
      load_max_at = events;
    }
  }
}

void TraceScan::finish() {
  for (std::uint64_t const begin : begin_)
    if (begin > 0) lifetimes.add(events + 1 - begin);
  end_step();
}

// Events before the first step belong to no step.
void TraceScan::end_step() {
  if (steps >= 2) {
    step_sizes_.each([&](std::uint64_t size, std::uint64_t count) {
      repeated += std::min(count, last_step_sizes_.of(size));
    });
    compared += std::max(step_allocs_, last_step_allocs_);
  }
  last_step_sizes_ = std::exchange(step_sizes_, {});
  last_step_allocs_ = std::exchange(step_allocs_, 0);
}

std::uint64_t TraceScan::streams() const {
  return static_cast<std::uint64_t>(std::ranges::count(streams_, std::uint8_t{true}));
}

void HighLoad::add(TracePart const& part) {
  for (std::size_t n = 0; n < part.events(); ++n) {
    Wide const load = load_.after(Op{part.op[n]}, part.block[n], part.size[n]);
    count += static_cast<double>(load) >= threshold_;
  }
}

}  // namespace allocbench

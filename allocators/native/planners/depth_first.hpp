// planners/depth_first.hpp: limits and failed states of depth-first searches.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "planners/plan.hpp"

namespace allocbench {

// Ends a search after a number of nodes, or when `stop` returns true.
class SearchLimit {
 public:
  // `stop` is called after this many steps, which the search defines.
  explicit SearchLimit(std::uint64_t steps_between_stops) : between_stops_(steps_between_stops) {}

  void start(std::uint64_t nodes, Stop const& stop) {
    nodes_left_ = nodes;
    stop_ = &stop;
    reached_ = false;
  }

  // Counts a node with this many steps. Returns true if the limit is reached.
  bool count(std::uint64_t steps) {
    steps_ += steps;
    if (steps_ >= between_stops_) {
      steps_ = 0;
      reached_ = reached_ || (*stop_)();
    }
    reached_ = reached_ || nodes_left_ == 0;
    if (!reached_) --nodes_left_;
    return reached_;
  }

  bool reached() const { return reached_; }

 private:
  std::uint64_t between_stops_, steps_ = 0, nodes_left_ = 0;
  Stop const* stop_ = nullptr;
  bool reached_ = false;
};

// Remembers states from which no plan of a height can be reached, by their hashes. A state can be
// forgotten when another one is added.
class FailedStates {
 public:
  // Forgets all states if the height is another one, or if the number of nodes asks for a table of
  // another size.
  void start(Size height, std::uint64_t nodes) {
    auto const capacity = std::bit_ceil(std::min(nodes, kMost));
    if (height != height_ || states_.size() != capacity) states_.assign(capacity, 0);
    height_ = height;
  }

  bool contain(std::uint64_t state) const { return states_[state % states_.size()] == state; }
  void add(std::uint64_t state) { states_[state % states_.size()] = state; }

 private:
  static constexpr std::uint64_t kMost = std::uint64_t{1} << 20;

  std::vector<std::uint64_t> states_;
  Size height_ = 0;
};

}  // namespace allocbench

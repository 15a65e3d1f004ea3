// planners/arena_planner.cpp: offsets for the tensors of a graph, in two arenas.
// SPDX-License-Identifier: Apache-2.0
#include "planners/arena_planner.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/errors.hpp"

namespace allocbench {

ArenaPlanner::ArenaPlanner(Device& device, Graph graph, bool preserve_inputs,
                           bool preserve_intermediates, Size alignment)
    : graph_(std::move(graph)),
      alignment_(alignment),
      arena_(device, alignment),
      persistent_(device, alignment),
      steps_(graph_.operators.size()),
      placed_(graph_.tensors.size()) {
  check(graph_);
  schedule(preserve_inputs, preserve_intermediates);
}

void ArenaPlanner::execute(int first, int last) {
  last = std::min(last, static_cast<int>(steps_.size()) - 1);
  if (first != executed_ || last < first)
    throw SpecError("arena planner: operators " + std::to_string(first) + " to " +
                    std::to_string(last) + " are not the next of " + std::to_string(steps_.size()) +
                    "; next is " + std::to_string(executed_));
  for (; executed_ <= last; ++executed_) {
    auto const at = static_cast<std::size_t>(executed_);
    auto const& temporaries = graph_.operators[at].temporaries;
    for (int tensor : temporaries) place(tensor);
    for (int tensor : steps_[at].begin) place(tensor);
    for (int tensor : steps_[at].end) remove(tensor);
    for (int tensor : temporaries) remove(tensor);
  }
  arena_.commit();
  persistent_.commit();
}

void ArenaPlanner::set_bytes(int tensor, Size bytes) {
  auto const at = static_cast<std::size_t>(tensor);
  if (at >= placed_.size() || placed_[at])
    throw SpecError("arena planner: tensor " + std::to_string(tensor) +
                    (at >= placed_.size() ? " does not exist" : " is placed already"));
  graph_.tensors[at].bytes = bytes;
}

std::optional<Size> ArenaPlanner::offset(int tensor) const {
  auto const& block = placed_.at(static_cast<std::size_t>(tensor));
  return block ? std::optional(block->offset) : std::nullopt;
}

Address ArenaPlanner::address(int tensor) const {
  auto const at = static_cast<std::size_t>(tensor);
  auto const& block = placed_.at(at);
  if (!block) return 0;
  return (graph_.tensors[at].placement == Placement::kPersistent ? persistent_ : arena_)
      .resolve(*block);
}

void ArenaPlanner::schedule(bool preserve_inputs, bool preserve_intermediates) {
  if (steps_.empty()) return;
  std::vector<int> readers(graph_.tensors.size());
  std::vector<bool> begun(graph_.tensors.size());
  auto const keep = [&](std::vector<int> const& tensors) {
    for (int tensor : tensors)
      if (tensor != kOptionalTensor) ++readers[static_cast<std::size_t>(tensor)];
  };
  auto const begin = [&](Step& step, std::vector<int> const& tensors) {
    for (int tensor : tensors) {
      if (tensor == kOptionalTensor || begun[static_cast<std::size_t>(tensor)]) continue;
      begun[static_cast<std::size_t>(tensor)] = true;
      step.begin.push_back(tensor);
    }
  };
  keep(graph_.outputs);
  keep(graph_.variables);
  if (preserve_inputs) keep(graph_.inputs);
  for (Operator const& op : graph_.operators) keep(op.inputs);

  begin(steps_.front(), graph_.inputs);
  begin(steps_.front(), graph_.variables);
  for (std::size_t at = 0; at < steps_.size(); ++at) {
    Operator const& op = graph_.operators[at];
    begin(steps_[at], op.outputs);
    if (preserve_intermediates) continue;
    for (int tensor : op.inputs) {
      if (tensor == kOptionalTensor) continue;
      auto const index = static_cast<std::size_t>(tensor);
      if (--readers[index] == 0 && begun[index]) steps_[at].end.push_back(tensor);
    }
  }
}

void ArenaPlanner::place(int tensor) {
  auto const at = static_cast<std::size_t>(tensor);
  auto const [bytes, placement] = graph_.tensors[at];
  if (placement == Placement::kArena) placed_[at] = arena_.allocate(alignment_, bytes);
  if (placement == Placement::kPersistent) placed_[at] = persistent_.allocate(alignment_, bytes);
}

void ArenaPlanner::remove(int tensor) {
  auto const at = static_cast<std::size_t>(tensor);
  if (graph_.tensors[at].placement == Placement::kArena) arena_.deallocate(*placed_[at]);
}

}  // namespace allocbench

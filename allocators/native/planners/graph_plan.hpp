// planners/graph_plan.hpp: offsets for the tensors of a graph, all lifetimes known at once.
// SPDX-License-Identifier: Apache-2.0
//
// TFLite's ArenaPlanner of today, with any planner in place of its own (greedy_by_size). A tensor
// comes alive at the operator that writes it (inputs of the graph and variables at the first) and
// dies after the last operator that reads it. Variables, outputs of the graph and tensors that no
// operator reads never die, nor do inputs of the graph where these are preserved.
//
// In place, the first output of an operator takes the memory of an input, its owner's, which lives
// until the last reader of any tensor in it:
//   ADD, SUB, MUL, DIV (input 0, else input 1), SOFTMAX, DYNAMIC_UPDATE_SLICE (input 0), if both
//     have the same size of more than 4 bytes and neither input nor owner has another reader;
//   RESHAPE, SQUEEZE, EXPAND_DIMS, BITCAST (input 0), which change no byte, always.
// Never from an input of the graph, nor into an output of it, nor outside the arena.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "planners/exact.hpp"
#include "planners/graph.hpp"

namespace allocbench {

struct GraphOptions {
  bool preserve_inputs = true;
  bool preserve_intermediates = false;  // nothing but temporaries dies, nothing is in place
  Size alignment = 64;
};

struct GraphPlan {
  std::vector<std::optional<Size>> offsets;  // of each tensor, in its arena
  std::vector<int> owners;                   // of each tensor: itself, unless it is in place
  Size arena_size = 0, persistent_arena_size = 0;
  Size lower_bound = 0;  // of the arena's size
};

// Throws SpecError for a planner or a tensor index that does not exist, and as `plan` does.
GraphPlan plan_graph(std::string_view planner, Graph const& graph, GraphOptions const& options,
                     Effort const& effort = {});

}  // namespace allocbench

// planners/graph_plan.hpp: offsets for the tensors of a graph whose lifetimes are all known.
// SPDX-License-Identifier: Apache-2.0
//
// TFLite's current ArenaPlanner, with a choice of planners in place of its own (greedy_by_size). A
// tensor becomes alive at the operator that writes it (graph inputs and variables: at the first)
// and dies after the last operator that reads it. Variables, graph outputs and tensors that no
// operator reads never die, nor do graph inputs if they are preserved.
//
// In-place operators: the first output takes over the memory of an input, that is, of its owner,
// which then lives until the last reader of any tensor that uses it:
//   ADD, SUB, MUL, DIV (input 0, else input 1), SOFTMAX, DYNAMIC_UPDATE_SLICE (input 0), if both
//     have the same size of more than 4 bytes and neither input nor owner has another reader;
//   RESHAPE, SQUEEZE, EXPAND_DIMS, BITCAST (input 0), always, as they change no bytes.
// Never from a graph input, never into a graph output and never outside the arena.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "planners/exact.hpp"
#include "planners/graph.hpp"

namespace allocbench {

struct GraphOptions {
  bool preserve_inputs = true;
  bool preserve_intermediates = false;  // only temporaries die, and nothing is computed in place
  Size alignment = 64;
};

struct GraphPlan {
  std::vector<std::optional<Size>> offsets;  // of each tensor in its arena
  std::vector<int> owners;                   // of each tensor: itself, unless computed in place
  Size arena_size = 0, persistent_arena_size = 0;
  Size lower_bound = 0;  // of arena_size
};

// Throws SpecError for an unknown planner or tensor index, and whatever `plan` throws.
GraphPlan plan_graph(std::string_view planner, Graph const& graph, GraphOptions const& options,
                     SearchBudget const& budget = {});

}  // namespace allocbench

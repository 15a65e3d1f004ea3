// planners/graph_plan.hpp: offsets for the tensors of a graph whose lifetimes are all known.
// SPDX-License-Identifier: Apache-2.0
//
// TFLite's current ArenaPlanner, with a choice of planners in addition to its own (greedy_by_size).
// A tensor becomes alive at the operator that writes it (graph inputs and variables: at the first
// operator) and is freed after the last operator that reads it. Variables, graph outputs and
// tensors that no operator reads are never freed, nor are graph inputs if they are preserved.
//
// In-place operators: the first output uses the memory of an input, that is, of the input's owner,
// which then lives until the last reader of any tensor that uses its memory:
//   ADD, SUB, MUL, DIV (input 0, or else input 1), SOFTMAX, DYNAMIC_UPDATE_SLICE (input 0), if
//   input
//     and output have the same size of more than 4 bytes and neither the input nor its owner has
//     another reader;
//   RESHAPE, SQUEEZE, EXPAND_DIMS, BITCAST (input 0), always, because they change no bytes.
// The input must not be a graph input, the output must not be a graph output, and both must be in
// the arena.
//
// Outputs of one operator that have the same size are placed by greedy_by_size in the order in
// which TFLite places them. The other planners are given the tensors by index.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "planners/exact.hpp"
#include "planners/graph.hpp"

namespace allocbench {

struct GraphOptions {
  bool preserve_inputs = true;
  bool preserve_intermediates = false;  // free only temporaries, and compute nothing in place
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

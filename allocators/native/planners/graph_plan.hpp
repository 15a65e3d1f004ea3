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
//   ADD, SUB, MUL, DIV (input 0, or else input 1), SOFTMAX, DYNAMIC_UPDATE_SLICE (input 0), if the
//     sizes of input and output are equal and above 4 bytes, and if neither the input nor its owner
//     has another reader;
//   RESHAPE, SQUEEZE, EXPAND_DIMS, BITCAST (input 0), always, because they change no bytes.
// The input must not be a graph input, the output must not be a graph output, and both must be in
// the arena.
//
// Outputs of one operator that have the same size are placed by greedy_by_size in the order in
// which TFLite places them. The other planners are given the tensors by index.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planners/planners.hpp"

namespace allocbench {

constexpr int kOptionalTensor = -1;  // stands for an optional tensor that an operator does not use

enum class Placement {
  kArena,       // in the arena, while the tensor is alive
  kPersistent,  // in the persistent arena, for the whole run
  kDynamic,     // in no arena: allocated while the graph runs
  kNone,        // in no arena: a constant or supplied by the caller
};

struct Tensor {
  Size bytes = 0;
  Placement placement = Placement::kArena;
};

// Tensors are identified by index. Temporaries live only while their operator runs. `name` is the
// type of the operator ("ADD", "CONV_2D") and is optional.
struct Operator {
  std::vector<int> inputs, outputs, temporaries;
  std::string name;
};

struct Graph {
  std::vector<Tensor> tensors;
  std::vector<Operator> operators;  // in execution order
  std::vector<int> inputs, outputs, variables;
};

// Throws SpecError for a tensor index that is out of range.
void check(Graph const& graph);

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

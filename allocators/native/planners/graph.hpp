// planners/graph.hpp: the operators of a program and the tensors between them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/types.hpp"

namespace allocbench {

constexpr int kOptionalTensor = -1;  // in place of a tensor that an operator does without

enum class Placement {
  kArena,       // shares the arena while it is alive
  kPersistent,  // keeps its place in an arena of its own
  kDynamic,     // allocated while the graph runs, in no arena
  kNone,        // constant or supplied from outside
};

struct Tensor {
  Size bytes = 0;
  Placement placement = Placement::kArena;
};

// Tensors are named by their index; temporaries live while their operator runs. `name` is the
// operator's kind, "ADD" or "CONV_2D"; it may be left out.
struct Operator {
  std::vector<int> inputs, outputs, temporaries;
  std::string name;
};

struct Graph {
  std::vector<Tensor> tensors;
  std::vector<Operator> operators;  // in execution order
  std::vector<int> inputs, outputs, variables;
};

// Throws SpecError for a tensor index out of range.
void check(Graph const& graph);

}  // namespace allocbench

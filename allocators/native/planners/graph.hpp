// planners/graph.hpp: the operators of a program and the tensors between them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/types.hpp"

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

}  // namespace allocbench

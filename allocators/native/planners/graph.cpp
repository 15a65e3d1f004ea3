// planners/graph.cpp: the operators of a program and the tensors between them.
// SPDX-License-Identifier: Apache-2.0
#include "planners/graph.hpp"

#include <iterator>

#include "core/errors.hpp"

namespace allocbench {

void check(Graph const& graph) {
  auto const check_all = [&](std::vector<int> const& tensors, bool optional) {
    for (int tensor : tensors)
      if (tensor >= std::ssize(graph.tensors) ||
          tensor < (optional ? kOptionalTensor : kOptionalTensor + 1))
        throw SpecError("arena planner: tensor " + std::to_string(tensor) +
                        " does not exist; the graph has " + std::to_string(graph.tensors.size()));
  };
  check_all(graph.inputs, true);
  check_all(graph.outputs, false);
  check_all(graph.variables, true);
  for (Operator const& op : graph.operators) {
    check_all(op.inputs, true);
    check_all(op.outputs, false);
    check_all(op.temporaries, false);
  }
}

}  // namespace allocbench

// planners/graph_plan.cpp: offsets for the tensors of a graph whose lifetimes are all known.
// SPDX-License-Identifier: Apache-2.0
#include "planners/graph_plan.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <span>
#include <unordered_set>

#include "core/errors.hpp"

namespace allocbench {
namespace {

struct InPlace {
  std::string_view op;
  std::size_t inputs;  // number of inputs whose memory can be reused, tried in order
  bool changes_bytes;
};
constexpr InPlace kInPlace[] = {
    {"ADD", 2, true},      {"SUB", 2, true},      {"MUL", 2, true},
    {"DIV", 2, true},      {"SOFTMAX", 1, true},  {"DYNAMIC_UPDATE_SLICE", 1, true},
    {"RESHAPE", 1, false}, {"SQUEEZE", 1, false}, {"EXPAND_DIMS", 1, false},
    {"BITCAST", 1, false},
};
constexpr Size kSmall = 4;  // bytes: tensors of at most this size may still change their size

bool contains(std::vector<int> const& tensors, int tensor) {
  return std::ranges::find(tensors, tensor) != tensors.end();
}

bool throughout(Lifetime const& one) { return one.first == 0 && one.last == kForever; }

class Lifetimes {
 public:
  Lifetimes(Graph const& graph, GraphOptions const& options)
      : graph_(graph),
        options_(options),
        owners_(graph.tensors.size()),
        alive_(graph.tensors.size()) {
    std::iota(owners_.begin(), owners_.end(), 0);
    if (!options.preserve_intermediates) share();
    find_begins();
    if (!options.preserve_intermediates) find_ends();
  }

  std::vector<int> const& owners() const { return owners_; }
  // Empty for a tensor that is never alive.
  std::optional<Lifetime> of(int tensor) const { return alive_[index_of(tensor)]; }

 private:
  static std::size_t index_of(int tensor) { return static_cast<std::size_t>(tensor); }

  // The number of readers of each owner. A tensor that must never die has an extra reader.
  std::vector<int> readers() const {
    std::vector<int> readers(graph_.tensors.size());
    auto const add = [&](std::vector<int> const& tensors) {
      for (int const tensor : tensors)
        if (tensor != kOptionalTensor) ++readers[index_of(owners_[index_of(tensor)])];
    };
    add(graph_.outputs);
    add(graph_.variables);
    if (options_.preserve_inputs) add(graph_.inputs);
    for (Operator const& op : graph_.operators) add(op.inputs);
    return readers;
  }

  void share() {
    std::vector<int> const counts = readers();
    for (Operator const& op : graph_.operators) {
      auto const rule = std::ranges::find(kInPlace, std::string_view(op.name), &InPlace::op);
      if (rule == std::end(kInPlace) || op.outputs.empty()) continue;
      int const output = op.outputs.front();
      auto const inputs = std::span(op.inputs).first(std::min(rule->inputs, op.inputs.size()));
      auto const input = std::ranges::find_if(inputs, [&](int tensor) {
        return can_share(tensor, output, rule->changes_bytes, counts);
      });
      if (input == inputs.end()) continue;
      int const owner = owners_[index_of(*input)];
      if (!rule->changes_bytes || counts[index_of(owner)] <= 1) owners_[index_of(output)] = owner;
    }
  }

  bool can_share(int input, int output, bool changes_bytes, std::vector<int> const& counts) const {
    if (input == kOptionalTensor) return false;
    auto const [bytes, placement] = graph_.tensors[index_of(input)];
    auto const [output_bytes, output_placement] = graph_.tensors[index_of(output)];
    if (changes_bytes && (bytes != output_bytes || bytes <= kSmall || counts[index_of(input)] > 1))
      return false;
    return placement == Placement::kArena && output_placement == Placement::kArena &&
           !contains(graph_.inputs, input) && !contains(graph_.outputs, output) &&
           !contains(graph_.variables, input);
  }

  void find_begins() {
    auto const begin = [&](std::vector<int> const& tensors, std::uint32_t instant) {
      for (int const tensor : tensors)
        if (tensor != kOptionalTensor && !alive_[index_of(tensor)])
          alive_[index_of(tensor)] = {graph_.tensors[index_of(tensor)].bytes, instant, kForever};
    };
    begin(graph_.inputs, 0);
    begin(graph_.variables, 0);
    std::uint32_t instant = 0;
    for (Operator const& op : graph_.operators) {
      begin(op.outputs, instant);
      for (int const tensor : op.temporaries)
        alive_[index_of(tensor)] = {graph_.tensors[index_of(tensor)].bytes, instant, instant + 1};
      ++instant;
    }
  }

  void find_ends() {
    std::vector<int> remaining = readers();
    std::uint32_t instant = 0;
    for (Operator const& op : graph_.operators) {
      ++instant;
      for (int const tensor : op.inputs) {
        if (tensor == kOptionalTensor) continue;
        auto const owner = index_of(owners_[index_of(tensor)]);
        if (--remaining[owner] == 0 && alive_[owner] && alive_[owner]->first < instant)
          alive_[owner]->last = instant;
      }
    }
  }

  Graph const& graph_;
  GraphOptions const& options_;
  std::vector<int> owners_;
  std::vector<std::optional<Lifetime>> alive_;
};

// The tensors that are alive at some time, in the order in which TFLite places them: those that
// live throughout by index, the others by size (largest first), then by begin. What comes first
// among equals follows from the containers and the sort of the C++ library that TFLite uses, which
// are therefore the same here. Source: ArenaPlanner of TensorFlow Lite: PlanAllocations,
// GetTensorsToAllocate, CreateTensorAllocationVector.
std::vector<int> tflite_order(Graph const& graph, Lifetimes const& tensors) {
  std::vector<std::unordered_set<int>> made_by(std::max<std::size_t>(graph.operators.size(), 1));
  auto const collect = [&](std::size_t op, std::vector<int> const& made) {
    for (int const tensor : made)
      if (tensor != kOptionalTensor) made_by[op].insert(tensor);
  };
  collect(0, graph.inputs);
  collect(0, graph.variables);
  for (std::size_t op = 0; op < graph.operators.size(); ++op) {
    collect(op, graph.operators[op].outputs);
    collect(op, graph.operators[op].temporaries);
  }
  std::vector<int> order;
  for (auto const& made : made_by) order.insert(order.end(), made.begin(), made.end());
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    Lifetime const left = *tensors.of(a), right = *tensors.of(b);
    if (throughout(left) || throughout(right))
      return throughout(left) && (!throughout(right) || a < b);
    return left.size != right.size ? left.size > right.size : left.first < right.first;
  });
  std::vector<bool> seen(graph.tensors.size());
  std::erase_if(order, [&](int tensor) {
    bool const again = seen[static_cast<std::size_t>(tensor)];
    seen[static_cast<std::size_t>(tensor)] = true;
    return again;
  });
  return order;
}

// The same tensors in the order in which a planner is given them.
std::vector<int> order_for(std::string_view planner, Graph const& graph, Lifetimes const& tensors) {
  std::vector<int> order = tflite_order(graph, tensors);
  if (planner == "greedy_by_size") {  // it takes equal blocks in reverse
    auto const rest = std::ranges::find_if_not(
        order, [&](int tensor) { return throughout(*tensors.of(tensor)); });
    std::reverse(rest, order.end());
  } else {
    std::ranges::sort(order);
  }
  return order;
}

}  // namespace

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

GraphPlan plan_graph(std::string_view planner, Graph const& graph, GraphOptions const& options,
                     SearchBudget const& budget) {
  check(graph);
  Lifetimes const tensors(graph, options);
  GraphPlan result{std::vector<std::optional<Size>>(graph.tensors.size()), tensors.owners()};
  std::vector<int> const order = order_for(planner, graph, tensors);

  auto const plan_arena = [&](Placement placement) {
    std::vector<std::size_t> planned;
    std::vector<Lifetime> lifetimes;
    for (int const index : order) {
      auto const tensor = static_cast<std::size_t>(index);
      if (graph.tensors[tensor].placement != placement) continue;
      Lifetime const lifetime = *tensors.of(index);
      if (lifetime.size == 0) {
        result.offsets[tensor] = 0;
      } else if (result.owners[tensor] == index) {
        planned.push_back(tensor);
        lifetimes.push_back(lifetime);
      }
    }
    BoundedPlan bounded_plan = plan(planner, lifetimes, options.alignment, budget);
    for (std::size_t i = 0; i < planned.size(); ++i)
      result.offsets[planned[i]] = bounded_plan.plan.offsets[i];
    return bounded_plan;
  };
  BoundedPlan const arena = plan_arena(Placement::kArena);
  result.arena_size = arena.plan.height;
  result.lower_bound = arena.lower_bound;
  result.persistent_arena_size = plan_arena(Placement::kPersistent).plan.height;
  for (std::size_t tensor = 0; tensor < result.owners.size(); ++tensor)
    result.offsets[tensor] = result.offsets[static_cast<std::size_t>(result.owners[tensor])];
  return result;
}

}  // namespace allocbench

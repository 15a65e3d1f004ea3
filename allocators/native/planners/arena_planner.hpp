// planners/arena_planner.hpp: offsets for the tensors of a graph, in two arenas.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/device.hpp"
#include "core/types.hpp"
#include "planners/graph.hpp"
#include "planners/simple_memory_arena.hpp"

namespace allocbench {

// TFLite's ArenaPlanner of 2018. A tensor comes alive at the operator that writes it (inputs of
// the graph and variables at the start) and dies after the last operator that reads it. Outputs
// of the graph and variables never die, nor do the graph's inputs with `preserve_inputs`, nor any
// tensor but temporaries with `preserve_intermediates`.
class ArenaPlanner {
 public:
  static constexpr Size kAlignment = 64;

  // Throws SpecError for a tensor index out of range and for an alignment that is no power of two.
  ArenaPlanner(Device& device, Graph graph, bool preserve_inputs, bool preserve_intermediates,
               Size alignment);

  // Places what operators `first` to `last`, or to the last there is, need and commits the arenas.
  // Called once for each operator, in order, it may go in stretches: the size of a later tensor may
  // become known
  // (`set_bytes`) while an earlier stretch runs. Throws SpecError when operators are repeated or
  // left out, OutOfMemory when the device refuses.
  void execute(int first, int last);
  // Throws SpecError once the tensor is placed.
  void set_bytes(int tensor, Size bytes);

  // Empty while the tensor has no place in an arena.
  std::optional<Size> offset(int tensor) const;
  Address address(int tensor) const;  // 0 while the tensor has no place in an arena

  Size arena_size() const { return arena_.high_water_mark(); }
  Size persistent_arena_size() const { return persistent_.high_water_mark(); }

 private:
  struct Step {  // what happens to tensors at one operator, in this order
    std::vector<int> begin, end;
  };

  void schedule(bool preserve_inputs, bool preserve_intermediates);
  void place(int tensor);
  void remove(int tensor);

  Graph graph_;
  Size alignment_;
  SimpleMemoryArena arena_, persistent_;
  std::vector<Step> steps_;  // one for each operator
  std::vector<std::optional<SimpleMemoryArena::Alloc>> placed_;
  int executed_ = 0;
};

}  // namespace allocbench

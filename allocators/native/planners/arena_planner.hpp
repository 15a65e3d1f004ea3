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

// TFLite's ArenaPlanner of 2018. A tensor becomes alive at the operator that writes it (graph
// inputs and variables: at the start) and is freed after the last operator that reads it. Graph
// outputs and variables are never freed, nor are graph inputs with `preserve_inputs`. With
// `preserve_intermediates`, only temporaries are freed.
class ArenaPlanner {
 public:
  static constexpr Size kAlignment = 64;

  // Throws SpecError for a tensor index that is out of range and for an alignment that is not a
  // power of two.
  ArenaPlanner(Device& device, Graph graph, bool preserve_inputs, bool preserve_intermediates,
               Size alignment);

  // Places the tensors of operators `first` to `last` (or to the final operator) and commits the
  // arenas. The operators must be executed in order, but may be split over several calls, so that
  // `set_bytes` can set the size of a later tensor between calls. Throws SpecError if operators are
  // repeated or skipped, OutOfMemory if the device refuses.
  void execute(int first, int last);
  // Throws SpecError if the tensor has already been placed.
  void set_bytes(int tensor, Size bytes);

  // Empty if the tensor has not been placed in an arena.
  std::optional<Size> offset(int tensor) const;
  Address address(int tensor) const;  // 0 if the tensor has not been placed in an arena

  Size arena_size() const { return arena_.high_water_mark(); }
  Size persistent_arena_size() const { return persistent_.high_water_mark(); }

 private:
  struct Changes {  // the tensors that begin and then those that end at an operator
    std::vector<int> begin, end;
  };

  void schedule(bool preserve_inputs, bool preserve_intermediates);
  void place(int tensor);
  void remove(int tensor);

  Graph graph_;
  Size alignment_;
  SimpleMemoryArena arena_, persistent_;
  std::vector<Changes> changes_;  // one for each operator
  std::vector<std::optional<SimpleMemoryArena::Alloc>> placed_;
  int executed_ = 0;
};

}  // namespace allocbench

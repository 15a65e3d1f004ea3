// planners/arena_planner.hpp: offsets for the tensors of a graph while it runs, in two arenas.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/device.hpp"
#include "core/types.hpp"
#include "planners/graph_plan.hpp"
#include "planners/time_order.hpp"

namespace allocbench {

// TFLite's SimpleMemoryArena. Blocks first get offsets (Gaps); `commit` then obtains one segment as
// large as the high-water mark, and `resolve` turns an offset into an address. A block of size 0 is
// allowed and resolves to null.
class SimpleMemoryArena {
 public:
  struct Alloc {
    Size offset = 0;
    Size size = 0;
  };

  // `alignment` of the segment. Throws SpecError unless it is a power of two of at most 2 MiB, the
  // alignment of a device's segments.
  SimpleMemoryArena(Device& device, Size alignment);
  ~SimpleMemoryArena();
  SimpleMemoryArena(SimpleMemoryArena const&) = delete;
  SimpleMemoryArena& operator=(SimpleMemoryArena const&) = delete;

  // O(log n) time for n placed blocks. Throws SpecError for an alignment that is not a power of
  // two.
  Alloc allocate(Size alignment, Size size);
  // Throws BadFree unless the block is placed.
  void deallocate(Alloc block);
  // Throws OutOfMemory if the device refuses, and then keeps the old segment. Growing moves the
  // arena, so addresses resolved before are invalid.
  void commit();
  // Throws SpecError before commit, or for a block beyond the committed size.
  Address resolve(Alloc block) const;
  // Removes all blocks but keeps the segment for reuse.
  void clear();

  Size high_water_mark() const { return gaps_.high_water_mark(); }
  Size committed_size() const { return committed_size_; }

 private:
  Device& device_;
  Size alignment_;
  Gaps gaps_;
  bool committed_ = false;
  Address segment_ = 0;
  Size committed_size_ = 0;
};

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

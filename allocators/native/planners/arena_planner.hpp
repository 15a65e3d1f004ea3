// planners/arena_planner.hpp: offsets for the tensors of a graph while it runs, in two arenas.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/device.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"
#include "planners/fast_planners.hpp"
#include "planners/graph_plan.hpp"

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
  SimpleMemoryArena(Device& device, Size alignment) : device_(device), alignment_(alignment) {
    check_alignment(alignment);
  }

  ~SimpleMemoryArena() {
    if (segment_ != 0) device_.free(segment_);
  }

  SimpleMemoryArena(SimpleMemoryArena const&) = delete;
  SimpleMemoryArena& operator=(SimpleMemoryArena const&) = delete;

  // O(log n) time for n placed blocks. Throws SpecError for an alignment that is not a power of
  // two.
  Alloc allocate(Size alignment, Size size) {
    check_alignment(alignment);
    committed_ = false;
    if (size == 0) return {};
    return {gaps_.place(size, alignment), size};
  }

  // Throws BadFree unless the block is placed.
  void deallocate(Alloc block) {
    if (block.size != 0) gaps_.remove(block.offset, block.size);
  }

  // Throws OutOfMemory if the device refuses, and then keeps the old segment. Growing moves the
  // arena, so addresses resolved before are invalid.
  void commit() {
    Size const needed = round_up(gaps_.high_water_mark(), alignment_);
    if (needed > committed_size_) {
      Address const larger = device_.allocate(needed, this);
      if (larger == 0)
        throw OutOfMemory("arena: the device refused a segment of " + human_bytes(needed) +
                          "; it has room for " + human_bytes(device_.room()));
      if (segment_ != 0) device_.free(segment_);
      segment_ = larger;
      committed_size_ = needed;
    }
    committed_ = true;
  }

  // Throws SpecError before commit, or for a block beyond the committed size.
  Address resolve(Alloc block) const {
    if (!committed_) throw SpecError("arena: commit before resolving a block");
    if (block.size == 0) return 0;
    if (block.offset + block.size > committed_size_)
      throw SpecError("arena: the block ends at " + std::to_string(block.offset + block.size) +
                      ", beyond the committed " + std::to_string(committed_size_) + " bytes");
    return segment_ + block.offset;
  }

  // Removes all blocks but keeps the segment for reuse.
  void clear() {
    committed_ = false;
    gaps_ = {};
  }

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
               Size alignment)
      : graph_(std::move(graph)),
        alignment_(alignment),
        arena_(device, alignment),
        persistent_(device, alignment),
        changes_(graph_.operators.size()),
        placed_(graph_.tensors.size()) {
    check(graph_);
    schedule(preserve_inputs, preserve_intermediates);
  }

  // Places the tensors of operators `first` to `last` (or to the final operator) and commits the
  // arenas. The operators must be executed in order, but may be split over several calls, so that
  // `set_bytes` can set the size of a later tensor between calls. Throws SpecError if operators are
  // repeated or skipped, OutOfMemory if the device refuses.
  void execute(int first, int last) {
    last = std::min(last, static_cast<int>(changes_.size()) - 1);
    if (first != executed_ || last < first)
      throw SpecError("arena planner: operators " + std::to_string(first) + " to " +
                      std::to_string(last) + " are out of order: " + std::to_string(executed_) +
                      " of " + std::to_string(changes_.size()) + " operators have been executed");
    for (; executed_ <= last; ++executed_) {
      auto const index = static_cast<std::size_t>(executed_);
      auto const& temporaries = graph_.operators[index].temporaries;
      for (int tensor : temporaries) place(tensor);
      for (int tensor : changes_[index].begin) place(tensor);
      for (int tensor : changes_[index].end) remove(tensor);
      for (int tensor : temporaries) remove(tensor);
    }
    arena_.commit();
    persistent_.commit();
  }

  // Throws SpecError if the tensor has already been placed.
  void set_bytes(int tensor, Size bytes) {
    auto const index = static_cast<std::size_t>(tensor);
    if (index >= placed_.size() || placed_[index])
      throw SpecError("arena planner: tensor " + std::to_string(tensor) +
                      (index >= placed_.size() ? " does not exist" : " already has an offset"));
    graph_.tensors[index].bytes = bytes;
  }

  // Empty if the tensor has not been placed in an arena.
  std::optional<Size> offset(int tensor) const {
    auto const& block = placed_.at(static_cast<std::size_t>(tensor));
    return block ? std::optional(block->offset) : std::nullopt;
  }

  // 0 if the tensor has not been placed in an arena
  Address address(int tensor) const {
    auto const index = static_cast<std::size_t>(tensor);
    auto const& block = placed_.at(index);
    if (!block) return 0;
    return (graph_.tensors[index].placement == Placement::kPersistent ? persistent_ : arena_)
        .resolve(*block);
  }

  Size arena_size() const { return arena_.high_water_mark(); }
  Size persistent_arena_size() const { return persistent_.high_water_mark(); }

 private:
  struct Changes {  // the tensors that begin and then those that end at an operator
    std::vector<int> begin, end;
  };

  void schedule(bool preserve_inputs, bool preserve_intermediates) {
    if (changes_.empty()) return;
    std::vector<int> readers(graph_.tensors.size());
    std::vector<bool> begun(graph_.tensors.size());
    auto const keep = [&](std::vector<int> const& tensors) {
      for (int tensor : tensors)
        if (tensor != kOptionalTensor) ++readers[static_cast<std::size_t>(tensor)];
    };
    auto const begin = [&](Changes& changes, std::vector<int> const& tensors) {
      for (int tensor : tensors) {
        if (tensor == kOptionalTensor || begun[static_cast<std::size_t>(tensor)]) continue;
        begun[static_cast<std::size_t>(tensor)] = true;
        changes.begin.push_back(tensor);
      }
    };
    keep(graph_.outputs);
    keep(graph_.variables);
    if (preserve_inputs) keep(graph_.inputs);
    for (Operator const& op : graph_.operators) keep(op.inputs);

    begin(changes_.front(), graph_.inputs);
    begin(changes_.front(), graph_.variables);
    for (std::size_t number = 0; number < changes_.size(); ++number) {
      Operator const& op = graph_.operators[number];
      begin(changes_[number], op.outputs);
      if (preserve_intermediates) continue;
      for (int tensor : op.inputs) {
        if (tensor == kOptionalTensor) continue;
        auto const index = static_cast<std::size_t>(tensor);
        if (--readers[index] == 0 && begun[index]) changes_[number].end.push_back(tensor);
      }
    }
  }

  void place(int tensor) {
    auto const index = static_cast<std::size_t>(tensor);
    auto const [bytes, placement] = graph_.tensors[index];
    if (placement == Placement::kArena) placed_[index] = arena_.allocate(alignment_, bytes);
    if (placement == Placement::kPersistent)
      placed_[index] = persistent_.allocate(alignment_, bytes);
  }

  void remove(int tensor) {
    auto const index = static_cast<std::size_t>(tensor);
    if (graph_.tensors[index].placement == Placement::kArena) arena_.deallocate(*placed_[index]);
  }

  Graph graph_;
  Size alignment_;
  SimpleMemoryArena arena_, persistent_;
  std::vector<Changes> changes_;  // one for each operator
  std::vector<std::optional<SimpleMemoryArena::Alloc>> placed_;
  int executed_ = 0;
};

}  // namespace allocbench

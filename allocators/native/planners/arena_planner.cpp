// planners/arena_planner.cpp: offsets for the tensors of a graph while it runs, in two arenas.
// SPDX-License-Identifier: Apache-2.0
#include "planners/arena_planner.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace allocbench {

SimpleMemoryArena::SimpleMemoryArena(Device& device, Size alignment)
    : device_(device), alignment_(alignment) {
  check_alignment(alignment);
}

SimpleMemoryArena::~SimpleMemoryArena() {
  if (segment_ != 0) device_.free(segment_);
}

SimpleMemoryArena::Alloc SimpleMemoryArena::allocate(Size alignment, Size size) {
  check_alignment(alignment);
  committed_ = false;
  if (size == 0) return {};
  return {gaps_.place(size, alignment), size};
}

void SimpleMemoryArena::deallocate(Alloc block) {
  if (block.size != 0) gaps_.remove(block.offset, block.size);
}

void SimpleMemoryArena::commit() {
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

Address SimpleMemoryArena::resolve(Alloc block) const {
  if (!committed_) throw SpecError("arena: commit before resolving a block");
  if (block.size == 0) return 0;
  if (block.offset + block.size > committed_size_)
    throw SpecError("arena: the block ends at " + std::to_string(block.offset + block.size) +
                    ", beyond the committed " + std::to_string(committed_size_) + " bytes");
  return segment_ + block.offset;
}

void SimpleMemoryArena::clear() {
  committed_ = false;
  gaps_ = {};
}

ArenaPlanner::ArenaPlanner(Device& device, Graph graph, bool preserve_inputs,
                           bool preserve_intermediates, Size alignment)
    : graph_(std::move(graph)),
      alignment_(alignment),
      arena_(device, alignment),
      persistent_(device, alignment),
      changes_(graph_.operators.size()),
      placed_(graph_.tensors.size()) {
  check(graph_);
  schedule(preserve_inputs, preserve_intermediates);
}

void ArenaPlanner::execute(int first, int last) {
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

void ArenaPlanner::set_bytes(int tensor, Size bytes) {
  auto const index = static_cast<std::size_t>(tensor);
  if (index >= placed_.size() || placed_[index])
    throw SpecError("arena planner: tensor " + std::to_string(tensor) +
                    (index >= placed_.size() ? " does not exist" : " already has an offset"));
  graph_.tensors[index].bytes = bytes;
}

std::optional<Size> ArenaPlanner::offset(int tensor) const {
  auto const& block = placed_.at(static_cast<std::size_t>(tensor));
  return block ? std::optional(block->offset) : std::nullopt;
}

Address ArenaPlanner::address(int tensor) const {
  auto const index = static_cast<std::size_t>(tensor);
  auto const& block = placed_.at(index);
  if (!block) return 0;
  return (graph_.tensors[index].placement == Placement::kPersistent ? persistent_ : arena_)
      .resolve(*block);
}

void ArenaPlanner::schedule(bool preserve_inputs, bool preserve_intermediates) {
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

void ArenaPlanner::place(int tensor) {
  auto const index = static_cast<std::size_t>(tensor);
  auto const [bytes, placement] = graph_.tensors[index];
  if (placement == Placement::kArena) placed_[index] = arena_.allocate(alignment_, bytes);
  if (placement == Placement::kPersistent) placed_[index] = persistent_.allocate(alignment_, bytes);
}

void ArenaPlanner::remove(int tensor) {
  auto const index = static_cast<std::size_t>(tensor);
  if (graph_.tensors[index].placement == Placement::kArena) arena_.deallocate(*placed_[index]);
}

}  // namespace allocbench

// strategies/arena.cpp: records and plans the first step; later steps follow the plan.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/arena.hpp"

#include <algorithm>
#include <string>

#include "core/errors.hpp"

namespace allocbench {
namespace {

PlannerInfo const& chosen_planner(Options const& given) {
  std::string valid;
  for (PlannerInfo const& candidate : planners()) {
    if (candidate.name == given.text("planner")) return candidate;
    valid.append(valid.empty() ? "" : ", ").append(candidate.name);
  }
  given.reject("planner", "must be one of " + valid);
}

}  // namespace

Arena::Arena(Device& device, Options const& given)
    : Allocator(device), segment_size_(given.bytes("segment")), planner_(chosen_planner(given)) {
  if (segment_size_ < kAlignment) given.reject("segment", "must be at least 256 bytes");
}

Block Arena::do_allocate(Size requested, Stream) {
  Size const size = round_up(requested, kAlignment);
  Block block = phase_ == Phase::kServing ? from_plan(size, requested) : Block{};
  Served& served = block.size != 0 ? planned_ : fallback_;
  if (block.size == 0) block = from_blocks(size, requested);
  if (block.size == 0) return {};
  ++served.requests;
  served.bytes += requested;
  if (phase_ == Phase::kRecording) {
    recorded_.insert(block.address, static_cast<Index>(requests_.size()));
    requests_.push_back({size, instants_++});
  }
  return block;
}

Block Arena::do_deallocate(Address address, Stream) {
  if (in_arena(address)) return alive_.remove(address);
  Block const freed = blocks_.deallocate(address);
  if (phase_ == Phase::kRecording && freed.size != 0)
    if (Index const request = recorded_.erase(address); request != kNone)
      requests_[request].last = instants_++;
  return freed;
}

void Arena::do_step() {
  if (phase_ == Phase::kRecording) make_plan();
  phase_ = phase_ == Phase::kBefore ? Phase::kRecording : Phase::kServing;
  cursor_ = 0;
  refused_ = false;
}

void Arena::make_plan() {
  std::vector<Lifetime> lifetimes;
  for (Request& request : requests_) {
    request.planned = request.last != 0;
    if (request.planned) lifetimes.push_back({request.size, request.first, request.last});
  }
  Plan const plan = planner_.make(lifetimes, kAlignment, {}).plan;
  auto offset = plan.offsets.begin();
  for (Request& request : requests_)
    if (request.planned) request.offset = *offset++;
  height_ = plan.height;
  recorded_ = {};
  release_idle();  // makes room for the arena, which replaces the memory of the recorded step
}

Block Arena::from_plan(Size size, Size requested) {
  if (cursor_ == requests_.size()) return {};
  Request const& request = requests_[cursor_++];
  if (!request.planned || size > request.size || !holds_arena()) return {};
  Block const block{arena_ + request.offset, size, requested};
  return alive_.add(block) ? block : Block{};
}

Block Arena::from_blocks(Size size, Size requested) {
  Index node = blocks_.find(size);
  if (node == kNone) node = grow(size);
  if (node == kNone && release_idle()) {
    count_retry();
    node = grow(size);
  }
  return node == kNone ? Block{} : blocks_.allocate(node, size, requested);
}

// Obtains the arena from the device if it is not held yet. Tries at most once per step.
bool Arena::holds_arena() {
  if (arena_ == 0 && !refused_) {
    arena_ = acquire(height_);
    refused_ = arena_ == 0;
  }
  return arena_ != 0;
}

Index Arena::grow(Size size) {
  auto const [address, granted] = acquire_between(size, segment_size_, kAlignment);
  if (address == 0) return kNone;
  return blocks_.add(address, granted);
}

// Returns the arena and the other segments if they have no live block; false if none was returned.
bool Arena::release_idle() {
  if (!returns_memory()) return false;
  bool const any =
      blocks_.release_idle([this](Address segment, Size size) { release(segment, size); });
  if (arena_ == 0 || !alive_.empty()) return any;
  release(arena_, height_);
  arena_ = 0;
  return true;
}

std::vector<Segment> Arena::do_snapshot() const {
  auto all = blocks_.snapshot();
  if (arena_ != 0) all.push_back(alive_.tiled_in(arena_, height_));
  return all;
}

Size Arena::do_largest_free() const {
  Size const in_arena = arena_ == 0 ? 0 : largest_free_in({alive_.tiled_in(arena_, height_)});
  return std::max(blocks_.largest_free(), in_arena);
}

void Arena::do_check() const {
  blocks_.check();
  require(arena_ != 0 || alive_.empty(), "planned blocks are alive only in an arena");
}

Counters Arena::do_counters() const {
  return {{"planned_requests", planned_.requests},
          {"planned_bytes", planned_.bytes},
          {"fallback_requests", fallback_.requests},
          {"fallback_bytes", fallback_.bytes}};
}

}  // namespace allocbench

// strategies/planned.cpp: steps served from a plan of earlier steps, on pages of virtual memory.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/planned.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "core/errors.hpp"
#include "planners/profile_file.hpp"

namespace allocbench {

Planned::Planned(Device& device, Options const& given)
    : Allocator(device),
      page_(given.bytes("page")),
      profile_(given.given("plan") ? read_profile(given, "plan") : Profile()) {
  if (page_ == 0 || page_ % device.granularity() != 0)
    given.reject("page", "must be a multiple of the device's granularity, " +
                             std::to_string(device.granularity()) + " bytes");
  for (Space* space : spaces()) space->page = page_;
}

Block Planned::do_allocate(Size requested, Stream) {
  Size const size = round_up(requested, StepKind::kUnit);
  if (begins_step(requested)) {
    profile_.begin_step();
    was_crossed_ = std::exchange(crossed_, false);
  }
  auto const [ticket, offset] = profile_.request(requested);
  Block block = offset == Profile::kNowhere ? Block{} : from_plan(offset, size, requested);
  Served& served = block.size != 0 ? planned_ : fallback_;
  if (block.size == 0) block = from_pool(size, requested);
  if (block.size == 0) return {};
  ++served.requests;
  served.bytes += requested;
  tickets_.insert(block.address, ticket);
  return block;
}

Block Planned::do_deallocate(Address address, Stream) {
  auto const ticket = tickets_.take(address);
  if (!ticket) return {};
  profile_.freed(*ticket);
  bool const in_plan = plan_.contains(address);
  Pool& pool = pools_[pools_[1].space.contains(address)];
  Block const freed = in_plan ? alive_.take(address) : pool.blocks.give(address);
  Space& space = in_plan ? plan_ : pool.space;
  space.pages.leave(space.touched(freed));
  return freed;
}

// Where there are no marks, steps end where the profile says, as long as it is right, and are
// looked for after that.
bool Planned::begins_step(Size requested) {
  if (marked_) return std::exchange(mark_, false);
  bool const found = finder_.begins(requested, counted().requested.current);
  return profile_.follows() ? profile_.complete() : found;
}

Block Planned::from_plan(Size offset, Size size, Size requested) {
  if (plan_.size == 0 && !reserve_space(plan_, offset + size)) return {};
  Block const block{plan_.address + offset, size, requested};
  if (offset + size > plan_.size || !alive_.add(block)) {
    crossed_ = true;
    return {};
  }
  if (furnish(plan_, block)) return block;
  alive_.take(block.address);
  return {};
}

Block Planned::from_pool(Size size, Size requested) {
  Pool& pool = pools_[size >= kSmall];
  Index node = pool.blocks.find(size);
  if (node == kNone && reserve_space(pool.space, size))
    node = pool.blocks.add(pool.space.address, pool.space.size);
  if (node == kNone) return {};
  Block const block = pool.blocks.take(node, size, requested);
  if (furnish(pool.space, block)) return block;
  pool.blocks.give(block.address);
  return {};
}

// Addresses for twice what the device has, or for as much as it gives; not twice.
bool Planned::reserve_space(Space& space, Size least) {
  if (space.size != 0) return false;
  for (Size size = round_up(2 * device().capacity(), page_); size >= least; size /= 2) {
    size = round_up(size, page_);
    space.address = reserve(size);
    if (space.address != 0) {
      space.size = size;
      return true;
    }
  }
  return false;
}

// Maps the pages of a new block; nothing changes when there is not enough memory. Idle pages move
// there as far as reserved bytes would exceed the highest load otherwise. Those of the plan would
// soon be mapped again for the plan: for its own blocks they move only as far as that exceeds what
// the step is known to need, too.
bool Planned::furnish(Space& space, Block const& block) {
  Pages::Run const run = space.touched(block);
  space.pages.enter(run);
  for (;;) {
    Pages::Run const missing = space.pages.first_run(run, false);
    if (missing.count == 0) return true;
    Size const load = std::max(counted().allocated.peak, counted().allocated.current + block.size);
    for (Pool& pool : pools_) take_idle(pool.space, excess(load, missing.count));
    take_idle(plan_, excess(&space == &plan_ ? std::max(load, needed()) : load, missing.count));
    if (map_run(space, missing)) continue;
    for (Space* other : spaces()) take_idle(*other, missing.count);
    if (!map_run(space, missing)) break;
  }
  space.pages.leave(run);
  return false;
}

// Bytes of the pools, and of the plan of this step to its end: what it is known to need, unless
// places were found taken of late.
Size Planned::needed() const {
  return crossed_ || was_crossed_
             ? 0
             : profile_.height() + pools_[0].space.mapped() + pools_[1].space.mapped();
}

// How many pages more would take reserved bytes above `most`, of as many as are missing.
std::size_t Planned::excess(Size most, std::size_t missing) const {
  Size const reserved = counted().reserved.current + missing * page_;
  return reserved <= most ? 0 : std::min(missing, (reserved - most + page_ - 1) / page_);
}

bool Planned::map_run(Space& space, Pages::Run run) {
  if (!map(space.begin(run), space.bytes(run), page_)) return false;
  space.pages.set_mapped(run, true);
  return true;
}

// Unmaps up to so many idle pages.
void Planned::take_idle(Space& space, std::size_t most) {
  while (most > 0 && space.pages.idle() > 0) {
    Pages::Run const idle = space.pages.idle_run(most);
    unmap(space.begin(idle), space.bytes(idle), page_);
    space.pages.set_mapped(idle, false);
    most -= idle.count;
  }
}

void Planned::do_trim() {
  for (Space* space : spaces()) take_idle(*space, ~std::size_t{0});
}

std::vector<Segment> Planned::do_snapshot() const {
  std::vector<Segment> found;
  for (Pool const& pool : pools_)
    for (Segment const& segment : pool.blocks.snapshot()) pool.space.add_mapped(segment, found);
  plan_.add_mapped(alive_.tiled_in(plan_.address, plan_.size), found);
  return found;
}

Size Planned::do_largest_free() const {
  Size largest = 0;
  for (Segment const& segment : do_snapshot())
    for (Block const& block : segment.blocks)
      if (!block.allocated()) largest = std::max(largest, block.size);
  return largest;
}

void Planned::do_check() const {
  std::size_t blocks = alive_.size();
  plan_.check(alive_.tiled_in(plan_.address, plan_.size));
  for (Pool const& pool : pools_) {
    pool.blocks.check();
    for (Segment const& segment : pool.blocks.snapshot()) {
      pool.space.check(segment);
      blocks += static_cast<std::size_t>(std::ranges::count_if(segment.blocks, &Block::allocated));
    }
  }
  require(blocks == tickets_.size(), "each block is known by its request");
}

Counters Planned::do_counters() const {
  return {{"planned_requests", planned_.requests},
          {"planned_bytes", planned_.bytes},
          {"fallback_requests", fallback_.requests},
          {"fallback_bytes", fallback_.bytes},
          {"plans", profile_.plans()}};
}

}  // namespace allocbench

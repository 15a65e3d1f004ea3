// replay_pass.cpp: what every replay does: fetches the parts of a trace and replays their events.
// SPDX-License-Identifier: Apache-2.0
#include "replay_pass.hpp"

#include <algorithm>
#include <cstdint>
#include <ranges>
#include <stdexcept>

namespace allocbench {

std::size_t PartChecks::check(TracePart const& part, std::size_t first) {
  std::size_t const events = part.events();
  if (part.block.size() != events || part.size.size() != events || part.stream.size() != events ||
      (!part.pool.empty() && part.pool.size() != events) ||
      (!part.id.empty() && part.id.size() != events))
    throw std::invalid_argument("not a valid trace: the arrays differ in length");
  if (events == 0 || events > trace_.events - first)
    throw std::invalid_argument("not a valid trace: its parts do not have " +
                                std::to_string(trace_.events) + " events in all");
  // Masks instead of branches: a replay that stops early takes hardly longer than these loops.
  std::uint8_t highest_op = 0;
  std::uint32_t highest_block = 0;
  for (std::size_t event = 0; event < events; ++event) {
    std::uint8_t const op = part.op[event];
    std::uint32_t const has_block = op <= static_cast<std::uint8_t>(Op::kFree);
    highest_op = std::max(highest_op, op);
    highest_block = std::max(highest_block, part.block[event] & -has_block);
  }
  std::uint64_t low = 0, high = 0;
  for (std::size_t event = 0; event < events; ++event) {
    std::uint64_t const has_size = part.op[event] == static_cast<std::uint8_t>(Op::kAlloc);
    std::uint64_t const size = part.size[event] & -has_size;
    low += size & 0xffffffff;
    high += size >> 32;
  }
  low_ += low;
  high_ += high;
  if (highest_op > static_cast<std::uint8_t>(Op::kPoolRelease) || highest_block >= trace_.events)
    find_bad_event(part, first);
  if (first == 0) {
    std::size_t block = 0;
    for (HeldSegment const& held : trace_.layout)
      for (std::size_t n = 0; n < held.segment.blocks.size(); ++n, ++block)
        if (block >= events || part.op[block] != static_cast<std::uint8_t>(Op::kAlloc))
          bad_trace(block, "is not the alloc of a block of the layout");
  }
  if (high_ + (low_ >> 32) >= std::uint64_t{1} << 31)
    throw std::invalid_argument("not a valid trace: its allocs add up to 2^63 bytes or more");
  return std::size_t{highest_block} + 1;
}

void PartChecks::find_bad_event(TracePart const& part, std::size_t first) const {
  for (std::size_t event = 0; event < part.events(); ++event) {
    if (part.op[event] > static_cast<std::uint8_t>(Op::kPoolRelease))
      bad_trace(first + event, "unknown op " + std::to_string(part.op[event]));
    if (part.op[event] <= static_cast<std::uint8_t>(Op::kFree) &&
        part.block[event] >= trace_.events)
      bad_trace(first + event, "block " + std::to_string(part.id_at(event)) + " is out of range");
  }
}

void bad_trace(std::size_t event, std::string const& rule) {
  throw std::invalid_argument("not a valid trace: event " + std::to_string(event) + ": " + rule);
}

bool Pass::next_part() {
  if (first_ + part_.events() == trace_.events) return false;
  carry_live_blocks();
  first_ += part_.events();
  part_ = {};  // its arrays end with the next call
  TracePart const next = trace_.next();
  std::size_t const blocks = std::max(address_.size(), checks_.check(next, first_));
  address_.resize(blocks);
  if (!next.pool.empty()) pool_.resize(blocks);
  part_ = next;
  return true;
}

std::size_t Pass::begin() {
  if (first_ > 0) return 0;
  pools().describe_pools(trace_.pools);
  auto* const takes_over = dynamic_cast<TakesOver*>(&allocator_);
  if (trace_.layout.empty() || takes_over == nullptr || !takes_over->adopt(trace_.layout)) return 0;
  std::size_t event = 0;
  for (HeldSegment const& held : trace_.layout)
    for (Block const& block : held.segment.blocks) {
      address_[part_.block[event]] = block.address;
      remember_pool(event++);
    }
  return event;
}

// A block that was carried so far is carried on unless the part frees it.
void Pass::carry_live_blocks() {
  is_carried_.resize(blocks());
  for (std::size_t event = 0; event < part_.events(); ++event)
    if (static_cast<Op>(part_.op[event]) == Op::kFree) is_carried_[part_.block[event]] = false;
  std::erase_if(carried_, [&](Carried const& old) { return !is_carried_[old.block]; });
  auto const old = static_cast<std::ptrdiff_t>(carried_.size());
  for (std::size_t event = part_.events(); event-- > 0;) {
    std::uint32_t const block = part_.block[event];
    if (static_cast<Op>(part_.op[event]) != Op::kAlloc) continue;
    if (address_[block] == 0 || is_carried_[block]) continue;
    carried_.push_back({block, stream_of(event)});
    is_carried_[block] = true;
  }
  std::ranges::reverse(carried_.begin() + old, carried_.end());
}

void Pass::free_the_rest(std::size_t end) {
  auto live = std::ranges::count_if(address_, [](Address address) { return address != 0; });
  auto const free_block = [&](std::uint32_t block, Stream stream) {
    Address& address = address_[block];
    if (address == 0) return;
    if (address != kFailed) allocator_.deallocate(address, stream);
    address = 0;
    --live;
  };
  for (std::size_t event = end; live > 0 && event-- > 0;)
    if (static_cast<Op>(part_.op[event]) == Op::kAlloc)
      free_block(part_.block[event], stream_of(event));
  for (Carried const& old : carried_ | std::views::reverse) free_block(old.block, old.stream);
  allocator_.deallocate(0);  // throws if the device has failed
}

std::size_t Pass::make_changes(std::size_t event) {
  for (; change_ != trace_.changes.end() && change_->event <= in_trace(event); ++change_) {
    if (change_->trim) allocator_.trim();
    if (change_->settings) live_settings(allocator_).change_settings(*change_->settings);
    if (change_->memory_fraction)
      live_settings(allocator_).change_memory_fraction(*change_->memory_fraction);
  }
  bool const none = change_ == trace_.changes.end();
  return none ? std::numeric_limits<std::size_t>::max() : change_->event - first_;
}

}  // namespace allocbench

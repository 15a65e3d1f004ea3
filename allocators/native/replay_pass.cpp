// replay_pass.cpp: what every replay does: fetches the parts of a trace and replays their events.
// SPDX-License-Identifier: Apache-2.0
#include "replay_pass.hpp"

#include <cstdint>
#include <ranges>

namespace allocbench {

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

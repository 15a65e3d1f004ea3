// block_numbers.cpp: small numbers for the blocks of a trace that is read part by part.
// SPDX-License-Identifier: Apache-2.0
#include "block_numbers.hpp"

#include "core/trace.hpp"

namespace allocbench {

std::size_t BlockNumbers::number(std::span<std::uint8_t const> op,
                                 std::span<std::uint32_t const> block,
                                 std::span<std::uint32_t> numbers) {
  for (std::size_t event = 0; event < op.size(); ++event) {
    numbers[event] = block[event];
    if (Op{op[event]} == Op::kAlloc) {
      Slot& slot = live_.find(block[event]);
      if (slot.used()) return event;
      // Without a free number, the live blocks have the numbers from 0 on.
      auto number = static_cast<std::uint32_t>(live_.count());
      if (!free_.empty()) {
        number = free_.back();
        free_.pop_back();
      }
      live_.add(slot, {block[event], number});
      numbers[event] = number;
    } else if (Op{op[event]} == Op::kFree) {
      Slot& slot = live_.find(block[event]);
      if (!slot.used()) return event;
      numbers[event] = slot.number;
      free_.push_back(slot.number);
      live_.remove(slot);
    }
  }
  return op.size();
}

}  // namespace allocbench

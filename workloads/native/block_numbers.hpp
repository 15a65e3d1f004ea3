// block_numbers.hpp: small numbers for the blocks of a trace that is read part by part.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hash_tables.hpp"

namespace allocbench {

// Gives each live block a number. It is free for another block after the block's free, so all
// numbers are below the largest number of blocks that are alive at once.
class BlockNumbers {
 public:
  // Writes the number of the block of each alloc and free, and `block` of any other event. Stops at
  // the first event that allocates a live block or frees one that is not live, and returns its
  // index, or the number of events if there is none. The spans have equal lengths.
  std::size_t number(std::span<std::uint8_t const> op, std::span<std::uint32_t const> block,
                     std::span<std::uint32_t> numbers);

 private:
  struct Slot {
    std::uint32_t key = 0;  // the block's id
    std::uint32_t number = kNone;
    bool used() const { return number != kNone; }
  };
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  Probed<Slot> live_;
  std::vector<std::uint32_t> free_;
};

}  // namespace allocbench

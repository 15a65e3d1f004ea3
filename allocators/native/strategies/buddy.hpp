// strategies/buddy.hpp: power-of-two blocks that split in half and merge with their buddies.
// SPDX-License-Identifier: Apache-2.0
//
// A request takes a block of the next power of two, at least 1 KiB. The smallest free block that is
// large enough (at the lowest address among equals) is halved until it has that size. A freed block
// merges with its buddy, the other half of the block from which both were split, while the buddy is
// free too. The offsets of buddies differ in one bit. Memory grows by regions, each a power of two
// with its own tree. Every request and every free takes O(log(region / 1 KiB)) splits or merges,
// each of O(log n) time for n free blocks of one size.
//
// Bad at: sizes just above a power of two, which nearly double.
#pragma once

#include <bit>
#include <map>

#include "core/allocator.hpp"
#include "parts/address_map.hpp"
#include "parts/free_index.hpp"
#include "parts/node.hpp"

namespace allocbench {

class Buddy : public Allocator {
 public:
  static constexpr Size kSmallest = kKiB;
  static constexpr Option options[] = {
      {"region", OptionType::kBytes, "1GiB",
       "bytes of a region, a power of two; a larger request gets its own region"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "buddy",
      .summary = "powers of two from 1 KiB up, split into halves and merged with their buddies",
      .worst_case = "inside a block: half of it; outside: free neighbors that are not buddies",
      .reference = "Knowlton, A fast storage allocator, CACM 8(10), 1965",
      .options = options,
      .largest_request =
          [](Size capacity) { return capacity < kSmallest ? 0 : std::bit_floor(capacity); },
      .exemption = "a block is a power of two, and so is the region that it needs",
  };

  Buddy(Device& device, Options const& given);
  StrategyInfo const& info() const override { return strategy; }

 private:
  struct Region {
    Size size;
    Index first;  // its first block
  };

 protected:
  Block do_allocate(Size requested, Stream) override;
  Block do_deallocate(Address address, Stream) override;
  void do_trim() override { release_idle(); }
  std::vector<Segment> do_snapshot() const override;
  Size do_largest_free() const override { return free_.largest(); }
  void do_check() const override;
  Counters do_counters() const override {
    return {{"search_steps", free_.search_steps() + allocated_.search_steps() + halvings_}};
  }

 private:
  bool grow(Size size);
  bool release_idle();
  void split(Index node);
  Index buddy_of(Index node) const;
  void merge(Index lower);

  Size region_size_;
  Nodes nodes_;
  FreeIndexWith<0> free_;  // a bin for each power of two
  AddressMap allocated_;
  std::map<Address, Region> regions_;
  std::uint64_t halvings_ = 0;  // splits and merges
};

}  // namespace allocbench

// strategies/free_lists.hpp: keeps freed slices by size and reuses them only for that size.
// SPDX-License-Identifier: Apache-2.0
//
// Requests are rounded up. A request reuses the last freed slice of its size. If there is none, it
// carves a slice from the current buffer. If that is too small, it obtains a new buffer from the
// device, and the rest of the old buffer becomes a free slice. Slices never split or coalesce. When
// the device is full, buffers without a live slice are returned to it before a retry. Every request
// and every free takes O(1) time, except those that call the device.
//
// Bad at: sizes that change from step to step. A slice serves no other size, so memory grows with
// every new size in the program.
#pragma once

#include <vector>

#include "core/allocator.hpp"
#include "parts/address_map.hpp"
#include "parts/node.hpp"

namespace allocbench {

class FreeLists : public Allocator {
 public:
  static constexpr Size kAlignment = 256;
  static constexpr Option options[] = {
      {"round", OptionType::kBytes, "1024",
       "round sizes up to a multiple of this number of bytes, itself a multiple of 256"},
      {"buffer", OptionType::kBytes, "5GiB",
       "bytes requested from the device at a time, or all that the device has left"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "free_lists",
      .summary = "one free list per rounded size; a slice is reused for that size only",
      .worst_case = "all memory except live slices, because a slice never serves another size",
      .reference = "size-keyed free lists under PyTorch's pluggable allocator",
      .options = options,
      .largest_request = [](Size capacity) { return round_down(capacity, 1024); },
      .exemption = "sizes are rounded up to 1024 bytes",
  };

  FreeLists(Device& device, Options const& given);
  StrategyInfo const& info() const override { return strategy; }

 private:
  struct Buffer {
    Address address;
    Size size;
    Size used = 0;                   // bytes carved from the front
    Size live = 0;                   // bytes in allocated slices
    std::vector<Index> slices = {};  // in order of address
  };
  struct Slice {
    Block block;
    Index buffer;
    Index next = kNone;  // in its free list
  };

 protected:
  Block do_allocate(Size requested, Stream) override;
  Block do_deallocate(Address address, Stream) override;
  void do_trim() override { release_idle(); }
  std::vector<Segment> do_snapshot() const override;
  Size do_largest_free() const override;
  void do_check() const override;
  Counters do_counters() const override {
    return {{"search_steps", allocated_.search_steps() + lists_.search_steps()}};
  }

 private:
  Index reuse(Size size);
  void set_free(Index slice);
  Index carve(Size size);
  bool grow(Size size);
  bool release_idle();

  Index add_slice(Buffer& buffer, Size size);

  Size round_;
  Size buffer_size_;
  AddressMap lists_;          // rounded size -> position in `heads_`
  std::vector<Index> heads_;  // the last freed slice of each size, or kNone
  LargeArray<Slice> slices_;
  std::vector<Index> unused_slices_;
  std::vector<Buffer> buffers_;  // those that have been returned have size 0
  std::vector<Index> unused_buffers_;
  Index current_ = kNone;  // the buffer being carved
  AddressMap allocated_;
};

}  // namespace allocbench

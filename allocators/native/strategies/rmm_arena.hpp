// strategies/rmm_arena.hpp: RMM's arenas, one per stream, over a fixed piece of the device.
// SPDX-License-Identifier: Apache-2.0
//
// The first request obtains the whole arena from the device; it never grows. (If the device refuses
// half of its memory, less is requested; RMM raises an error.) It is cut into
// superblocks of at least 1 MiB, each with its own free blocks, which coalesce inside of it. A
// request of at most 1 MiB takes a superblock of its stream, or moves one from the global arena to
// the stream; a larger request takes a superblock of the global arena. Both choose the superblock,
// and in it the block, at the lowest address that fits. Only the global arena splits and coalesces
// superblocks, and only those without a live block. When a request fails, all superblocks return to
// the global arena, and the request is retried. RMM returns memory only when the arena is
// destroyed; here a trim returns an arena without live blocks.
// A request takes O(n / 64) time for n superblocks, and O(f) for the f free blocks of one of them.
//
// Source: arena_memory_resource in RMM 25.04, built without RMM_ARENA_USE_SIZE_CLASSES.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "core/allocator.hpp"
#include "parts/address_map.hpp"
#include "parts/node.hpp"
#include "strategies/rmm_arena/superblocks.hpp"

namespace allocbench {

class RmmArena : public Allocator {
 public:
  static constexpr Size kAlignment = 256;
  static constexpr Size kSmallestSuperblock = kMiB;
  static constexpr Option options[] = {
      {"arena_size", OptionType::kBytes, "",
       "bytes of the arena, at least 1 MiB; default: half of the memory available at the first "
       "request"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "rmm_arena",
      .summary = "superblocks for each stream, from one piece that is half of the device (RMM)",
      .worst_case = "the free parts of superblocks that hold one small block",
      .reference = "arena_memory_resource of RMM",
      .options = options,
      .largest_request =
          [](Size capacity) {
            Size const arena = round_down(capacity / 2, kAlignment);
            return arena < kSmallestSuperblock ? 0 : arena;
          },
      .exemption = "the arena is half of the device",
  };

  RmmArena(Device& device, Options const& given);
  StrategyInfo const& info() const override { return strategy; }

 protected:
  Block do_allocate(Size requested, Stream stream) override;
  Block do_deallocate(Address address, Stream stream) override;
  void do_trim() override;
  std::vector<Segment> do_snapshot() const override;
  Size do_largest_free() const override;
  void do_check() const override;
  Counters do_counters() const override;

 private:
  bool open();
  Address place(Size size, Stream stream);
  Superblocks::Place acquire_superblock(Size size);
  void give_to_global(std::unique_ptr<Superblock> superblock);
  void defragment();
  std::vector<Superblock const*> in_order() const;

  Size arena_size_;  // 0: by default
  Segment arena_;    // size 0: not obtained; its list of blocks stays empty
  Superblocks global_;
  std::map<Stream, Superblocks> by_stream_;
  Nodes nodes_;  // the allocated blocks
  AddressMap allocated_;
  std::uint64_t search_steps_ = 0;
};

}  // namespace allocbench

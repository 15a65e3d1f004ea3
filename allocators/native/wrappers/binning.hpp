// wrappers/binning.hpp: pools of fixed block sizes in front of the inner allocator.
// SPDX-License-Identifier: Apache-2.0
//
// A request takes a block of the smallest bin that is large enough; requests that are larger than
// the largest bin go to the inner allocator. The bins are powers of two. Each one gets blocks from
// the inner allocator, 128 at a time: first all bins, when the first request arrives (RMM: when the
// resource is created), later a bin that has no free block. Bins never split or coalesce blocks and
// return none before a trim. Blocks are reused in the order in which they became free; StreamLists
// describes how a stream takes blocks of another one. Each private pool has bins of its own, whose
// blocks come from that pool of the inner allocator.
//
// Source: binning_memory_resource and fixed_size_memory_resource in RMM 25.04.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "parts/address_map.hpp"
#include "parts/node.hpp"
#include "parts/stream_lists.hpp"
#include "wrappers/wrapper.hpp"

namespace allocbench {

class Binning final : public Wrapper {
 public:
  static constexpr Option options[] = {
      {"smallest", OptionType::kBytes, "256KiB",
       "block size of the smallest bin, a power of two, at least 256 bytes"},
      {"largest", OptionType::kBytes, "4MiB",
       "block size of the largest bin, a power of two, at most 1 GiB"},
  };
  static constexpr WrapperInfo wrapper = {
      .name = "binning",
      .summary = "fixed-size pools for small requests (binning_memory_resource of RMM)",
      .options = options,
  };

  Binning(Device& device, Options const& given, MakeInner const& make_inner);

 private:
  // The free blocks of one stream in one bin, first in, first out.
  struct Queue {
    std::deque<Index> blocks = {};
    Index fit(Size) const { return blocks.empty() ? kNone : blocks.front(); }
  };
  struct Bin {
    explicit Bin(Size of) : size(of) {}
    Size size;
    StreamLists<Queue> queues;
  };
  // Blocks that the inner allocator gave as one, and the bytes that it gave beyond them.
  struct Chunk {
    std::vector<Index> blocks;
    Size rest;
  };
  // The bins of a private pool, or of the memory outside of them.
  struct Bins {
    explicit Bins(PoolId of, Size smallest, Size largest);
    Bin* bin_for(Size size);  // null if no bin is large enough

    PoolId pool;
    std::deque<Bin> all;  // in order of size
    bool started = false;
    AddressMap block_at;  // address -> node
    std::map<Address, Chunk> chunks;
    mutable std::optional<Size> largest_free;  // none: not looked up since the last change
  };

  Block do_allocate(Size requested, Stream stream) override;
  Block do_deallocate(Address address, Stream stream) override;
  void do_trim() override;
  void do_trim_pool(PoolId pool) override;
  std::vector<Segment> do_snapshot() const override;
  Size do_largest_free() const override;
  void do_check() const override;

  Bins& bins_of(Stream stream);  // to change them
  static Size largest_free(Bins const& bins);
  void fill(Bins& bins, Bin& bin, Queue& queue, Stream stream);
  void give_back(Bins& bins);
  bool is_free(std::vector<Index> const& blocks) const;
  void check(Bins const& bins) const;

  Size smallest_;
  Size largest_;
  Nodes nodes_;  // the blocks of all bins
  std::map<PoolId, Bins> bins_;
};

}  // namespace allocbench

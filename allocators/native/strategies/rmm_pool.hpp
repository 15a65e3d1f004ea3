// strategies/rmm_pool.hpp: RMM's pool, best fit with coalescing per stream.
// SPDX-License-Identifier: Apache-2.0
//
// Sizes are rounded up to 256 bytes. A request takes the smallest free block that is large enough,
// at the lowest address among equals, and returns what it does not need to the free list. Free
// blocks are kept by the stream that freed them, and coalesce only with neighbors in the same list;
// StreamLists describes how a stream takes blocks of another one. If no block is large enough, the
// pool grows: it doubles, or with a maximum size takes half of what is left. A refused size is
// halved until it is granted or as small as the request. RMM returns memory only when the pool is
// destroyed; here a trim returns the segments that are wholly free.
// A request takes O(log n) steps for n free blocks, a free O(log n).
//
// Source: pool_memory_resource and coalescing_free_list in RMM 25.04.
#pragma once

#include <map>
#include <vector>

#include "core/allocator.hpp"
#include "parts/address_map.hpp"
#include "parts/free_index.hpp"
#include "parts/node.hpp"
#include "parts/stream_lists.hpp"

namespace allocbench {

class RmmPool final : public Allocator {
 public:
  static constexpr Size kAlignment = 256;
  static constexpr Option options[] = {
      {"initial_pool_size", OptionType::kBytes, "",
       "bytes requested from the device at the first request; default: half of the memory "
       "available then"},
      {"maximum_pool_size", OptionType::kBytes, "",
       "limit for the whole pool, in bytes; default: the capacity of the device, and the pool "
       "doubles each time that it grows"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "rmm_pool",
      .summary = "best fit with coalescing in a pool that starts with half of the device (RMM)",
      .worst_case = "free blocks that are too small, and free blocks of other streams",
      .reference = "pool_memory_resource of RMM",
      .options = options,
      .largest_request = [](Size capacity) { return round_down(capacity / 2, kAlignment); },
      .exemption = "the pool starts with half of the device, and blocks never span two segments",
  };

  RmmPool(Device& device, Options const& given);
  StrategyInfo const& info() const override { return strategy; }

 private:
  // The free blocks of one stream.
  class List {
   public:
    explicit List(RmmPool& pool) : pool_(pool), free_(pool.nodes_) {}
    Index find(Size wanted) const { return free_.fit(wanted); }
    void absorb(List& other);
    void insert(Index block);  // coalesces it with its neighbors in this list
    void remove(Index block);
    FreeIndex const& index() const { return free_; }

   private:
    RmmPool& pool_;
    FreeIndex free_;
  };

  struct Extent {
    Size size;
    Index first;  // its first block
  };

  Block do_allocate(Size requested, Stream stream) override;
  Block do_deallocate(Address address, Stream stream) override;
  void do_trim() override;
  std::vector<Segment> do_snapshot() const override;
  Size do_largest_free() const override;
  void do_check() const override;
  Counters do_counters() const override;

  void start();  // obtains the initial pool
  List& list_of(Stream stream) { return lists_.of(stream, *this); }
  Index add(Address address, Size size, List& list);
  Index grow(Size size, List& list);
  Index merge_with_next(Index block);

  bool default_initial_;
  Size initial_;
  Size maximum_;  // 0: none
  bool started_ = false;
  Nodes nodes_;
  std::vector<List*> holder_;  // by block: the list that holds it; null while it is allocated
  StreamLists<List> lists_;
  AddressMap allocated_;
  std::map<Address, Extent> segments_;
};

}  // namespace allocbench

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
// A request takes O(log n) time for n free blocks, a free O(log n).
//
// Source: pool_memory_resource and coalescing_free_list in RMM 25.04.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/allocator.hpp"
#include "parts/free_index.hpp"
#include "parts/segment_blocks.hpp"
#include "parts/stream_lists.hpp"

namespace allocbench {

// A best-fit index for each stream. Blocks are inserted into the index of the stream in `use`, and
// those of other streams are withheld from coalescing. Removing a block also uses its stream, so
// the rest of a block that is split stays where the block was.
class StreamIndex {
 public:
  explicit StreamIndex(Nodes& nodes) : nodes_(nodes) {}

  FreeIndex& use(Stream stream) { return *(used_ = &lists_.of(stream, nodes_)); }

  void insert(Index block) {
    if (holder_.size() <= block) holder_.resize(block + 1);
    holder_[block] = used_;
    used_->insert(block);
  }
  void remove(Index block) {
    used_ = holder_[block];
    holder_[block] = nullptr;
    used_->remove(block);
  }
  Index fit(Size wanted) const { return used_->fit(wanted); }
  bool contains(Index block) const {
    return holder_[block] != nullptr && holder_[block]->contains(block);
  }
  bool withholds(Index block) const { return holder_[block] != nullptr && holder_[block] != used_; }
  bool leaves_neighbors() const { return lists_.size() > 1; }

  Size largest() const {
    Size largest = 0;
    lists_.for_each([&](FreeIndex const& index) { largest = std::max(largest, index.largest()); });
    return largest;
  }
  std::uint64_t search_steps() const {
    std::uint64_t steps = 0;
    lists_.for_each([&](FreeIndex const& index) { steps += index.search_steps(); });
    return steps;
  }

  StreamLists<FreeIndex>& lists() { return lists_; }

 private:
  Nodes& nodes_;
  StreamLists<FreeIndex> lists_;
  FreeIndex* used_ = nullptr;
  std::vector<FreeIndex*> holder_;  // by block; null while it is allocated
};

class StreamPool : public SegmentBlocks<StreamIndex> {
 public:
  void use(Stream stream) { free_.use(stream); }

  // A free block for a request of a stream, chosen as StreamLists does, or kNone.
  Index find(Size wanted, Stream stream) {
    FreeIndex& own = free_.use(stream);
    auto const absorb = [&](FreeIndex& other) {
      for (Index block; (block = other.first()) != kNone;) {
        free_.remove(block);
        free_.use(stream);
        free_.insert(coalesced(block));
      }
    };
    return free_.lists().choose(wanted, own, absorb).block;
  }
};

class RmmPool : public Allocator {
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

  RmmPool(Device& device, Options const& given)
      : Allocator(device),
        default_initial_(!given.given("initial_pool_size")),
        initial_(default_initial_ ? 0 : given.bytes("initial_pool_size")),
        maximum_(given.given("maximum_pool_size") ? given.bytes("maximum_pool_size") : 0) {
    for (auto const name : {"initial_pool_size", "maximum_pool_size"})
      if (given.given(name) && given.bytes(name) % kAlignment != 0)
        given.reject(name, "must be a multiple of 256 bytes");
    if (given.given("maximum_pool_size") && maximum_ == 0)
      given.reject("maximum_pool_size", "must be at least 256 bytes");
    if (maximum_ != 0 && initial_ > maximum_)
      given.reject("initial_pool_size", "must not exceed maximum_pool_size");
  }

  StrategyInfo const& info() const override { return strategy; }

 protected:
  [[gnu::flatten]] Block do_allocate(Size requested, Stream stream) override {
    Size const size = round_up(requested, kAlignment);
    if (!started_ && device().has(size)) start();
    Index block = pool_.find(size, stream);
    if (block == kNone) block = grow(size);
    return block == kNone ? Block{} : pool_.allocate(block, size, requested);
  }

  [[gnu::flatten]] Block do_deallocate(Address address, Stream stream) override {
    pool_.use(stream);
    return pool_.deallocate(address);
  }

  void do_trim() override {
    if (returns_memory())
      pool_.release_idle([this](Address segment, Size size) { release(segment, size); });
  }

  std::vector<Segment> do_snapshot() const override { return pool_.snapshot(); }
  Size do_largest_free() const override { return pool_.largest_free(); }
  void do_check() const override { pool_.check(); }
  Counters do_counters() const override { return {{"search_steps", pool_.search_steps()}}; }

  Size do_room() const override {
    return maximum_ > 0 ? maximum_ - counted().reserved.current : ~Size{0};
  }

 private:
  // RMM passes requests on through a cuda::mr reference, which rounds them up to this.
  static constexpr Size kUpstreamAlignment = alignof(std::max_align_t);

  // obtains the initial pool
  [[gnu::noinline]] void start() {
    started_ = true;
    if (default_initial_) initial_ = round_down(room() / 2, kAlignment);
    initial_ = std::min(initial_, do_room());
    if (initial_ == 0) return;
    pool_.use(0);
    if (Address const first = acquire(initial_); first != 0) pool_.add(first, initial_);
  }

  // Adds a segment of at least `size` bytes for the stream in use; kNone if the device or the
  // maximum refuses it.
  [[gnu::noinline]] Index grow(Size size) {
    Size const held = counted().reserved.current;
    Size wanted = std::max(size, held);
    if (maximum_ > 0) {
      Size const room = round_up(maximum_ - held, kAlignment);
      if (size > room) return kNone;
      wanted = std::max(size, room / 2);
    }
    for (;; wanted = std::max(size, wanted / 2)) {
      Size const asked = round_up(wanted, kUpstreamAlignment);
      if (Address const segment = acquire(asked); segment != 0) return pool_.add(segment, asked);
      if (wanted == size) return kNone;
    }
  }

  bool default_initial_;
  Size initial_;
  Size maximum_;  // 0: no maximum
  bool started_ = false;
  StreamPool pool_;
};

}  // namespace allocbench

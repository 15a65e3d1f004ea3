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

#include <algorithm>
#include <vector>

#include "core/allocator.hpp"
#include "core/errors.hpp"
#include "parts/address_map.hpp"

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

  FreeLists(Device& device, Options const& given)
      : Allocator(device), round_(given.bytes("round")), buffer_size_(given.bytes("buffer")) {
    if (round_ == 0 || round_ % kAlignment != 0 || round_ > kGiB)
      given.reject("round", "must be a multiple of 256 bytes, at most 1 GiB");
    if (buffer_size_ < round_) given.reject("buffer", "must be at least as large as round");
  }

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
  [[gnu::flatten]] Block do_allocate(Size requested, Stream) override {
    Size const size = round_up(requested, round_);
    Index slice = reuse(size);
    if (slice == kNone) slice = carve(size);
    if (slice == kNone && grow(size)) slice = carve(size);
    if (slice == kNone && release_idle()) {
      count_retry();
      slice = carve(size);
      if (slice == kNone && grow(size)) slice = carve(size);
    }
    if (slice == kNone) return {};
    Slice& chosen = slices_[slice];
    chosen.block.requested = requested;
    buffers_[chosen.buffer].live += size;
    allocated_.insert(chosen.block.address, slice);
    return {chosen.block.address, size, requested};
  }

  [[gnu::flatten]] Block do_deallocate(Address address, Stream) override {
    Index const slice = allocated_.erase(address);
    if (slice == kNone) return {};
    Block const freed = slices_[slice].block;
    slices_[slice].block.requested = 0;
    buffers_[slices_[slice].buffer].live -= freed.size;
    set_free(slice);
    return freed;
  }

  void do_trim() override { release_idle(); }

  std::vector<Segment> do_snapshot() const override {
    std::vector<Segment> all;
    for (Buffer const& buffer : buffers_) {
      if (buffer.size == 0) continue;
      Segment& segment = all.emplace_back(Segment{buffer.address, buffer.size, {}});
      for (Index slice : buffer.slices) segment.blocks.push_back(slices_[slice].block);
      if (Size const rest = buffer.size - buffer.used; rest > 0)
        segment.blocks.push_back({buffer.address + buffer.used, rest, 0});
    }
    return all;
  }

  Size do_largest_free() const override {
    Size largest = current_ == kNone ? 0 : buffers_[current_].size - buffers_[current_].used;
    for (Index const slice : heads_)
      if (slice != kNone) largest = std::max(largest, slices_[slice].block.size);
    return largest;
  }

  void do_check() const override {
    std::size_t free = 0;
    lists_.for_each([&](Size size, Index list) {
      for (Index slice = heads_[list]; slice != kNone; slice = slices_[slice].next) {
        ++free;
        require(slices_[slice].block.size == size, "a free slice is listed under its own size");
        require(!slices_[slice].block.allocated(), "an allocated slice is in no free list");
      }
    });
    std::size_t slices = 0;
    for (Buffer const& buffer : buffers_) {
      slices += buffer.slices.size();
      Size used = 0, live = 0;
      for (Index slice : buffer.slices) {
        Block const& block = slices_[slice].block;
        used += block.size;
        if (block.allocated()) live += block.size;
      }
      require(used == buffer.used, "the used bytes of a buffer are the sum of its slices");
      require(live == buffer.live,
              "the live bytes of a buffer are the sum of its allocated slices");
    }
    require(slices == free + allocated_.size(),
            "every slice is either allocated or in a free list");
  }

  Counters do_counters() const override {
    return {{"search_steps", allocated_.search_steps() + lists_.search_steps()}};
  }

 private:
  Index reuse(Size size) {
    Index const list = lists_.find(size);
    if (list == kNone || heads_[list] == kNone) return kNone;
    Index const slice = heads_[list];
    heads_[list] = slices_[slice].next;
    return slice;
  }

  void set_free(Index slice) {
    Size const size = slices_[slice].block.size;
    Index list = lists_.find(size);
    if (list == kNone) {
      list = static_cast<Index>(heads_.size());
      heads_.push_back(kNone);
      lists_.insert(size, list);
    }
    slices_[slice].next = heads_[list];
    heads_[list] = slice;
  }

  Index carve(Size size) {
    if (current_ == kNone) return kNone;
    Buffer& buffer = buffers_[current_];
    return size <= buffer.size - buffer.used ? add_slice(buffer, size) : kNone;
  }

  [[gnu::noinline]] bool grow(Size size) {
    auto const [address, granted] = acquire_between(size, buffer_size_, round_);
    if (address == 0) return false;
    if (current_ != kNone) {
      Buffer& old = buffers_[current_];
      if (Size const rest = old.size - old.used; rest > 0) set_free(add_slice(old, rest));
    }
    current_ = static_cast<Index>(buffers_.size());
    if (unused_buffers_.empty()) {
      buffers_.emplace_back();
    } else {
      current_ = unused_buffers_.back();
      unused_buffers_.pop_back();
    }
    buffers_[current_] = {address, granted};
    return true;
  }

  // Returns every buffer without a live slice; false if there was none.
  [[gnu::noinline]] bool release_idle() {
    if (!returns_memory()) return false;
    bool any = false;
    for (Index index = 0; index < buffers_.size(); ++index) {
      Buffer& buffer = buffers_[index];
      if (buffer.size == 0 || buffer.live > 0) continue;
      any = true;
      if (index == current_) current_ = kNone;
      release(buffer.address, buffer.size);
      unused_buffers_.push_back(index);
      for (Index const slice : buffer.slices) slices_.drop(slice);
      buffer = {0, 0};
    }
    if (!any) return false;
    std::ranges::fill(heads_, kNone);
    for (Buffer const& buffer : buffers_)
      for (Index slice : buffer.slices)
        if (!slices_[slice].block.allocated()) set_free(slice);
    return true;
  }

  Index add_slice(Buffer& buffer, Size size) {
    Index const slice = slices_.put(
        {{buffer.address + buffer.used, size, 0}, static_cast<Index>(&buffer - buffers_.data())});
    buffer.slices.push_back(slice);
    buffer.used += size;
    return slice;
  }

  Size round_;
  Size buffer_size_;
  AddressMap lists_;          // rounded size -> position in `heads_`
  std::vector<Index> heads_;  // the last freed slice of each size, or kNone
  Slots<Slice> slices_;
  std::vector<Buffer> buffers_;  // those that have been returned have size 0
  std::vector<Index> unused_buffers_;
  Index current_ = kNone;  // the buffer being carved
  AddressMap allocated_;
};

}  // namespace allocbench

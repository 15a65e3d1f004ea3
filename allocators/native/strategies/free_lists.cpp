// strategies/free_lists.cpp: keeps freed slices by size and reuses them only for that size.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/free_lists.hpp"

#include <algorithm>

#include "core/errors.hpp"

namespace allocbench {

FreeLists::FreeLists(Device& device, Options const& given)
    : Allocator(device), round_(given.bytes("round")), buffer_size_(given.bytes("buffer")) {
  if (round_ == 0 || round_ % kAlignment != 0 || round_ > kGiB)
    given.reject("round", "must be a multiple of 256 bytes, at most 1 GiB");
  if (buffer_size_ < round_) given.reject("buffer", "must be at least as large as round");
}

Block FreeLists::do_allocate(Size requested, Stream) {
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

Block FreeLists::do_deallocate(Address address, Stream) {
  Index const slice = allocated_.erase(address);
  if (slice == kNone) return {};
  Block const freed = slices_[slice].block;
  slices_[slice].block.requested = 0;
  buffers_[slices_[slice].buffer].live -= freed.size;
  set_free(slice);
  return freed;
}

Index FreeLists::reuse(Size size) {
  Index const list = lists_.find(size);
  if (list == kNone || heads_[list] == kNone) return kNone;
  Index const slice = heads_[list];
  heads_[list] = slices_[slice].next;
  return slice;
}

void FreeLists::set_free(Index slice) {
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

Index FreeLists::carve(Size size) {
  if (current_ == kNone) return kNone;
  Buffer& buffer = buffers_[current_];
  return size <= buffer.size - buffer.used ? add_slice(buffer, size) : kNone;
}

Index FreeLists::add_slice(Buffer& buffer, Size size) {
  Index slice = static_cast<Index>(slices_.size());
  if (unused_slices_.empty()) {
    slices_.emplace_back();
  } else {
    slice = unused_slices_.back();
    unused_slices_.pop_back();
  }
  slices_[slice] = {{buffer.address + buffer.used, size, 0},
                    static_cast<Index>(&buffer - buffers_.data())};
  buffer.slices.push_back(slice);
  buffer.used += size;
  return slice;
}

bool FreeLists::grow(Size size) {
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
bool FreeLists::release_idle() {
  if (!returns_memory()) return false;
  bool any = false;
  for (Index index = 0; index < buffers_.size(); ++index) {
    Buffer& buffer = buffers_[index];
    if (buffer.size == 0 || buffer.live > 0) continue;
    any = true;
    if (index == current_) current_ = kNone;
    release(buffer.address, buffer.size);
    unused_buffers_.push_back(index);
    unused_slices_.insert(unused_slices_.end(), buffer.slices.begin(), buffer.slices.end());
    buffer = {0, 0};
  }
  if (!any) return false;
  std::ranges::fill(heads_, kNone);
  for (Buffer const& buffer : buffers_)
    for (Index slice : buffer.slices)
      if (!slices_[slice].block.allocated()) set_free(slice);
  return true;
}

std::vector<Segment> FreeLists::do_snapshot() const {
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

Size FreeLists::do_largest_free() const {
  Size largest = current_ == kNone ? 0 : buffers_[current_].size - buffers_[current_].used;
  for (Index const slice : heads_)
    if (slice != kNone) largest = std::max(largest, slices_[slice].block.size);
  return largest;
}

void FreeLists::do_check() const {
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
    require(live == buffer.live, "the live bytes of a buffer are the sum of its allocated slices");
  }
  require(slices == free + allocated_.size(), "every slice is either allocated or in a free list");
}

}  // namespace allocbench

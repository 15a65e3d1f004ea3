// strategies/tlsf.hpp: two-level segregated fit, with constant time for every request and free.
// SPDX-License-Identifier: Apache-2.0
//
// Sizes are rounded up to 256 bytes. Free blocks are kept in lists by size class, with 32 classes
// per power of two. Two bitmap searches find the first list in which every block is large enough.
// Its head is split, and the rest stays free. A freed block coalesces with its free neighbors at
// once. Memory grows by segments. When the device is full, segments without an allocated block are
// returned to it before a retry. A request and a free take O(1) time for any number of blocks,
// except those that call the device.
//
// Bad at: memory, slightly, because the search misses blocks that are less than 1/32 too large.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>

#include "core/allocator.hpp"
#include "parts/segment_blocks.hpp"
#include "parts/size_class.hpp"

namespace allocbench {

// Good fit takes any block of the first class in which every block is large enough, last freed
// first. If there is none, it takes the last freed block of the class that contains the request, if
// that one is large enough. The blocks of a class form a doubly linked list through the nodes'
// `left` (towards the head) and `right`. Every operation takes O(1) time, except `contains` and
// `largest`, which only checks and statistics use. (TLSF: Masmano, Ripoll, Crespo and Real, ECRTS
// 2004.)
class SegregatedIndex {
 public:
  explicit SegregatedIndex(Nodes& nodes) : nodes_(nodes) { heads_.fill(kNone); }

  void insert(Index node) {
    std::size_t const list = Class::of(size(node));
    Index const head = heads_[list];
    nodes_[node].left = kNone;
    nodes_[node].right = head;
    nodes_[node].bin = static_cast<Index>(list);
    nodes_[head].left = node;
    heads_[list] = node;
    marks_.mark(list);
  }

  void remove(Index node) {
    auto const [left, right, list] =
        std::tuple{nodes_[node].left, nodes_[node].right, nodes_[node].bin};
    (left == kNone ? heads_[list] : nodes_[left].right) = right;
    nodes_[right].left = left;
    marks_.unmark_if(heads_[list] == kNone, list);
  }

  // A good fit for `wanted` bytes, or kNone.
  Index fit(Size wanted) const {
    std::size_t const list = marks_.first(Class::at_least(wanted));
    if (list != Class::kCount) return heads_[list];
    Index const near = heads_[Class::of(wanted)];
    return size(near) >= wanted ? near : kNone;
  }

  bool contains(Index node) const {
    Index current = heads_[Class::of(size(node))];
    while (current != kNone && current != node) current = nodes_[current].right;
    return current == node;
  }

  // Always 0: no operation except `contains` and `largest` visits further nodes.
  static constexpr std::uint64_t search_steps() { return 0; }

  // Size of the largest free block in bytes; 0 if there is none.
  Size largest() const {
    std::size_t const list = marks_.last();
    Size largest_size = 0;
    if (list == Class::kCount) return largest_size;
    for (Index current = heads_[list]; current != kNone; current = nodes_[current].right)
      largest_size = std::max(largest_size, size(current));
    return largest_size;
  }

 private:
  using Class = SizeClass<5>;  // 32 lists to each power of two

  Size size(Index node) const { return nodes_[node].block.size; }

  Nodes& nodes_;
  std::array<Index, Class::kCount> heads_;
  ClassMarks<Class::kCount> marks_;
};

class Tlsf : public Allocator {
 public:
  static constexpr Size kRounding = 256;
  static constexpr Option options[] = {
      {"segment", OptionType::kBytes, "64MiB",
       "bytes requested from the device at a time; a larger request gets its own segment"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "tlsf",
      .summary = "two-level segregated fit: a good fit in constant time",
      .worst_case =
          "inside a block: 255 bytes; outside: free blocks that are less than 1/32 too large",
      .reference = "Masmano et al., TLSF: a new dynamic memory allocator, ECRTS 2004",
      .options = options,
      .largest_request = [](Size capacity) { return round_down(capacity, kRounding); },
      .exemption = "sizes are rounded up to 256 bytes",
  };

  Tlsf(Device& device, Options const& given)
      : Allocator(device), segment_size_(given.bytes("segment")) {
    if (segment_size_ < kRounding) given.reject("segment", "must be at least 256 bytes");
  }
  StrategyInfo const& info() const override { return strategy; }

 protected:
  [[gnu::flatten]] Block do_allocate(Size requested, Stream) override {
    Size const size = round_up(requested, kRounding);
    Index block = blocks_.find(size);
    if (block == kNone) block = grow(size);
    if (block == kNone && release_idle()) {
      count_retry();
      block = grow(size);
    }
    return block == kNone ? Block{} : blocks_.allocate(block, size, requested);
  }

  [[gnu::flatten]] Block do_deallocate(Address address, Stream) override {
    return blocks_.deallocate(address);
  }
  void do_trim() override { release_idle(); }
  std::vector<Segment> do_snapshot() const override { return blocks_.snapshot(); }
  Size do_largest_free() const override { return blocks_.largest_free(); }
  void do_check() const override { blocks_.check(); }
  Counters do_counters() const override { return {{"search_steps", blocks_.search_steps()}}; }

 private:
  Index grow(Size size) {
    auto const [address, granted] = acquire_between(size, segment_size_, kRounding);
    return address == 0 ? kNone : blocks_.add(address, granted);
  }

  bool release_idle() {
    return returns_memory() &&
           blocks_.release_idle([this](Address segment, Size size) { release(segment, size); });
  }

  Size segment_size_;
  SegmentBlocks<SegregatedIndex> blocks_;
};

}  // namespace allocbench

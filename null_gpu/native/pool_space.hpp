// null_gpu/pool_space.hpp: places and bytes of a memory pool of cudaMallocAsync.
// SPDX-License-Identifier: Apache-2.0
//
// NVIDIA does not document how a pool places its blocks. These rules were measured on an H100 with
// driver 580.159.04 (benchmarks/results/gpu): a pool has a range of addresses, and memory of the
// card behind pages of 32 MiB of it. A block gets a free range at a multiple of 512 bytes: first
// one that was freed on the same stream since the last miss, else any, always the smallest that is
// large enough, the addresses above all blocks being the largest. Pages without memory get that of
// pages in which nothing is allocated; only what these lack is taken from the card. So blocks
// fragment a page, but never more than one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu {

inline constexpr Size kPoolUnit = Size{32} << 20;

inline Size round_up(Size size, Size unit) { return (size + unit - 1) / unit * unit; }

// Adds a range to disjoint ranges, which are ends by begins.
void join_range(std::map<Address, Address>& ranges, Address begin, Address end);

// Offsets are in bytes from the begin of the pool's addresses. Not thread-safe.
class PoolSpace {
 public:
  // Takes a page from the card; false if it has none.
  using Take = std::function<bool()>;

  explicit PoolSpace(Size addresses);

  Size reserved() const { return pages_ * kPoolUnit; }
  // A place for a block in what was freed on this stream and is not settled.
  bool reuse(Size size, std::uint64_t stream, Size* offset);
  // A place anywhere else. False if there are no addresses, or not enough memory: the pool keeps
  // what it took until then, as the driver does.
  bool allocate(Size size, Take const& take, Size* offset);
  // Frees a block; other streams get its memory only after settle().
  void release(Size offset, Size size, std::uint64_t stream);
  // What was freed on a stream may be used by all.
  void settle(std::uint64_t stream);
  // Gives pages up in which nothing is allocated or unsettled, until at most `most` bytes are
  // reserved; returns their bytes.
  Size shrink(Size most);

  // The bytes that a block occupies.
  static Size occupied(Size size);

 private:
  struct Hole {
    Size end;
    std::uint64_t age;
  };
  using Holes = std::map<Address, Address>;  // ends by begin

  void add_hole(Size begin, Size end);
  void remove_hole(std::map<Size, Hole>::iterator hole);
  bool back(Size begin, Size end, Take const& take);
  template <typename Visit>
  void visit_free_pages(Visit visit);

  Size pages_ = 0;
  std::vector<bool> backed_;  // by page: whether there is memory
  std::map<Size, Hole> holes_;
  std::set<std::tuple<Size, std::uint64_t, Size>> by_size_;  // size, age, begin
  std::uint64_t age_ = ~std::uint64_t{0};                    // the newest hole has the least
  std::map<std::uint64_t, Holes> freed_;                     // by stream
};

}  // namespace allocbench::null_gpu

// gpu/driver_pool.hpp: a model of one memory pool behind cudaMallocAsync (cuMemPool).
// SPDX-License-Identifier: Apache-2.0
//
// NVIDIA does not document how a pool places its blocks. These rules were measured on an H100 with
// driver 580.159.04 (benchmarks/results/gpu): a pool has a range of addresses, and memory of the
// card behind pages of 32 MiB of it. A block gets a free range at a multiple of 512 bytes: first
// one that was freed on the same stream since the last miss, else any, always the smallest that is
// large enough, the addresses above all blocks being the largest. Pages without memory get that of
// pages in which nothing is allocated; only what these lack is taken from the card. So blocks
// fragment a page, but never more than one. A pool keeps freed memory until it shrinks: when it is
// trimmed, or to its release threshold when its streams are synchronized.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/stats.hpp"
#include "core/types.hpp"
#include "gpu/pages.hpp"

namespace allocbench {

// Not thread-safe. The owner finds the addresses, and takes the memory from the card.
class DriverPool {
 public:
  static constexpr Size kPage = 32 * kMiB;
  // Takes a page from the card; false if it has none.
  using Take = std::function<bool()>;
  // Whether a stream has ended the work before what was last freed on it.
  using Ended = std::function<bool(Stream)>;

  // `most`: bytes that it may reserve, rounded up to whole pages; 0: all of the card.
  explicit DriverPool(Size most = 0) : most_(round_up(most, kPage)) {}

  // Gives the pool its addresses: once, before the first block.
  void open(Address begin, Size size);
  bool opened() const { return begin_ != 0; }
  Address begin() const { return begin_; }
  bool contains(Address address) const { return address - begin_ < addresses_; }

  // A block; 0 if there are no addresses, or not enough memory: the pool keeps what it took until
  // then, as the driver does. What was freed on a stream that has not ended serves only this one.
  Address allocate(Size size, Stream stream, Ended const& ended, Take const& take);
  void release(Address block, Size size, Stream stream);
  // What was freed on streams that have ended may be used by all.
  void settle(Ended const& ended);
  // Gives up pages in which nothing is allocated or unsettled, until at most `most` bytes are
  // reserved; returns their bytes.
  Size shrink(Size most);

  // Bytes: of its blocks; in its pages.
  Gauge const& used() const { return used_; }
  Gauge const& reserved() const { return reserved_; }
  void reset_peak_used() { used_.peak = used_.current; }
  void reset_peak_reserved() { reserved_.peak = reserved_.current; }

 private:
  struct Hole {
    Address end;
    std::uint64_t age;
  };

  // What was freed on one stream.
  class Freed {
   public:
    void join(Address begin, Address end);
    Address cut(Size size);  // from the begin of the smallest range that is large enough, or 0
    Ranges const& ranges() const { return ranges_; }

   private:
    Ranges ranges_;
    std::set<std::pair<Size, Address>> by_size_;  // size, begin
  };

  void add_hole(Address begin, Address end);
  void remove_hole(std::map<Address, Hole>::iterator hole);
  bool back(Address begin, Address end, Take const& take);
  template <typename Visit>
  void visit_free_pages(Visit visit);

  Size most_;
  Gauge used_, reserved_;
  Address begin_ = 0;
  Size addresses_ = 0;        // bytes
  std::vector<bool> backed_;  // by page, up to the last that ever had memory: whether it has
  std::map<Address, Hole> holes_;
  std::set<std::tuple<Size, std::uint64_t, Address>> by_size_;  // size, age, begin
  std::uint64_t age_ = ~std::uint64_t{0};                       // the newest hole has the least
  std::map<Stream, Freed> freed_;                               // that is not settled
};

}  // namespace allocbench

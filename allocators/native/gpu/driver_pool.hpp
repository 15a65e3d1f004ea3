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

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "core/stats.hpp"

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
  void open(Address begin, Size size) {
    begin_ = begin;
    addresses_ = round_down(size, kPage);
    holes_.join(begin, begin + addresses_, --age_);
  }

  bool opened() const { return begin_ != 0; }
  Address begin() const { return begin_; }
  bool contains(Address address) const { return address - begin_ < addresses_; }

  // A block; 0 if there are no addresses, or not enough memory: the pool keeps what it took until
  // then, as the driver does. What was freed on a stream that has not ended serves only this one.
  Address allocate(Size size, Stream stream, Ended const& ended, Take const& take) {
    if (size > addresses_) return 0;
    auto const own = freed_.find(stream);
    Address block = own == freed_.end() ? 0 : own->second.cut(occupied(size));
    if (block == 0) {
      settle(ended);
      block = holes_.cut(occupied(size), --age_);
      if (block == 0) return 0;
      Address const end = block + occupied(size);
      if (!back(block, end, take)) {
        holes_.join(block, end, --age_);
        return 0;
      }
    }
    used_.add(size);
    return block;
  }

  void release(Address block, Size size, Stream stream) {
    used_.subtract(size);
    freed_[stream].join(block, block + occupied(size));
  }

  // What was freed on streams that have ended may be used by all.
  void settle(Ended const& ended) {
    std::erase_if(freed_, [&](auto const& entry) {
      if (!ended(entry.first)) return false;
      for (auto const& [begin, range] : entry.second.by_begin())
        holes_.join(begin, range.end, --age_);
      return true;
    });
  }

  // Gives up pages in which nothing is allocated or unsettled, until at most `most` bytes are
  // reserved; returns their bytes.
  Size shrink(Size most) {
    Size const before = reserved_.current;
    visit_free_pages([&](Size page) {
      if (reserved_.current <= most) return false;
      backed_[page] = false;
      reserved_.subtract(kPage);
      return true;
    });
    return before - reserved_.current;
  }

  // Bytes: of its blocks; in its pages.
  Gauge const& used() const { return used_; }
  Gauge const& reserved() const { return reserved_; }
  // Bytes from the first address to the end of the highest block that there was.
  Size extent() const { return backed_.size() * kPage; }
  void reset_peak_used() { used_.peak = used_.current; }
  void reset_peak_reserved() { reserved_.peak = reserved_.current; }

 private:
  static Size occupied(Size size) {
    constexpr Size kUnit = 512;
    return round_up(std::max<Size>(size, 1), kUnit);
  }

  // Ranges by address and by size. Among equal sizes, the newest is the first; with one age for
  // all, the lowest.
  class SizedRanges {
   public:
    struct Rest {
      Address end;
      std::uint64_t age;  // the newest has the least
    };
    std::map<Address, Rest> const& by_begin() const { return by_begin_; }

    // The range must not overlap any other. It becomes one with its neighbors.
    void join(Address begin, Address end, std::uint64_t age = 0) {
      auto next = by_begin_.lower_bound(begin);
      if (next != by_begin_.end() && next->first == end) {
        end = next->second.end;
        next = erase(next);
      }
      if (next != by_begin_.begin() && std::prev(next)->second.end == begin) {
        auto const before = std::prev(next);
        begin = before->first;
        erase(before);
      }
      by_begin_[begin] = {end, age};
      by_size_.emplace(end - begin, age, begin);
    }

    // The begin of the smallest range that is large enough, or 0. Its rest gets this age.
    Address cut(Size size, std::uint64_t age = 0) {
      auto const fit = by_size_.lower_bound({size, 0, 0});
      if (fit == by_size_.end()) return 0;
      auto const range = by_begin_.find(std::get<2>(*fit));
      Address const begin = range->first, end = range->second.end;
      erase(range);
      if (begin + size < end) join(begin + size, end, age);
      return begin;
    }

   private:
    std::map<Address, Rest>::iterator erase(std::map<Address, Rest>::iterator range) {
      by_size_.erase({range->second.end - range->first, range->second.age, range->first});
      return by_begin_.erase(range);
    }

    std::map<Address, Rest> by_begin_;
    std::set<std::tuple<Size, std::uint64_t, Address>> by_size_;  // size, age, begin
  };

  // Puts memory behind a range: that of pages in which nothing is, then more of the card.
  bool back(Address begin, Address end, Take const& take) {
    std::vector<Size> without;
    Size const last = round_up(end - begin_, kPage) / kPage;
    if (backed_.size() < last) backed_.resize(last);
    for (Size page = (begin - begin_) / kPage; page < last; ++page)
      if (!backed_[page]) without.push_back(page);
    auto next = without.begin();
    if (next == without.end()) return true;
    visit_free_pages([&](Size page) {
      if (next == without.end()) return false;
      backed_[page] = false;
      backed_[*next++] = true;
      return true;
    });
    for (; next != without.end(); ++next) {
      bool const may = most_ == 0 || reserved_.current + kPage <= most_;
      if (!may || !take()) return false;
      backed_[*next] = true;
      reserved_.add(kPage);
    }
    return true;
  }

  // Calls `visit` with each page that has memory and in which nothing is, until it returns false.
  template <class Visit>
  void visit_free_pages(Visit visit) {
    for (auto const& [begin, hole] : holes_.by_begin()) {
      Size const last = std::min<Size>(backed_.size(), (hole.end - begin_) / kPage);
      for (Size page = round_up(begin - begin_, kPage) / kPage; page < last; ++page)
        if (backed_[page] && !visit(page)) return;
    }
  }

  Size most_;
  Gauge used_, reserved_;
  Address begin_ = 0;
  Size addresses_ = 0;        // bytes
  std::vector<bool> backed_;  // by page, up to the last that ever had memory: whether it has
  SizedRanges holes_;
  std::uint64_t age_ = ~std::uint64_t{0};  // of the newest hole
  std::map<Stream, SizedRanges> freed_;    // that is not settled
};

}  // namespace allocbench

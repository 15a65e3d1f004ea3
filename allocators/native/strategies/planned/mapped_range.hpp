// strategies/planned/mapped_range.hpp: a reservation whose pages are mapped one by one, and the
// blocks in it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/types.hpp"
#include "parts/slots.hpp"
#include "strategies/planned/pages.hpp"

namespace allocbench {

// This class never calls the device; its owner maps and unmaps pages. A derived class knows the
// blocks and touches their pages.
class MappedRange {
 public:
  explicit MappedRange(Size page)
      : page_(page), shift_(std::countr_zero(page)), odd_(page >> shift_) {}

  void open(Address address, Size size) {
    address_ = address;
    size_ = size;
  }
  bool is_open() const { return size_ != 0; }
  bool contains(Address address) const { return address - address_ < size_; }
  Address begin() const { return address_; }
  Size size() const { return size_; }

  Pages::Run touched(Block const& block) const {
    std::size_t const first = page_of(block.address);
    return {first, page_of(block.end() - 1) + 1 - first};
  }
  Address begin(Pages::Run run) const { return address_ + run.first * page_; }
  Size bytes(Pages::Run run) const { return run.count * page_; }
  Size page() const { return page_; }
  Size mapped() const { return pages.mapped() * page_; }  // bytes
  Size idle() const { return pages.idle() * page_; }      // bytes

  // Each mapped range as a segment.
  std::vector<Segment> snapshot() const;
  Size largest_free() const;
  // Throws InvariantViolation.
  void check_pages() const;

  Pages pages;

 protected:
  ~MappedRange() = default;

  // Mostly, a page is a power of two.
  std::size_t page_of(Address address) const {
    Size const shifted = (address - address_) >> shift_;
    return odd_ == 1 ? shifted : shifted / odd_;
  }

 private:
  // All blocks that touch pages. Those that are not allocated have 0 requested bytes.
  virtual std::map<Address, Block> blocks() const = 0;

  Address address_ = 0;
  Size size_ = 0;
  Size page_;  // odd_ << shift_
  int shift_;
  Size odd_;
};

// Blocks can be placed at any address, and each has a `Known` value attached. Each page has a list
// of the blocks that begin or end in it; a touched page without a list is inside a block. To place
// or remove a block takes a step for each block that begins or ends in the same pages, plus one per
// 64 pages in between.
template <class Known>
class PlannedRange final : public MappedRange {
 public:
  using MappedRange::MappedRange;

  // `run`: the pages that the block touches. Returns false, and changes nothing, if the block
  // overlaps another one or is not inside the reservation.
  bool place(Block const& block, Pages::Run run, Known const& known) {
    if (!contains(block.address) || !contains(block.end() - 1)) return false;
    if (lists_.size() < run.end()) lists_.resize(std::max(run.end(), 2 * lists_.size()), kNone);
    if (overlaps(block, run.first)) return false;
    if (run.count > 1 && (overlaps(block, run.end() - 1) || pages.touched(inner(run))))
      return false;
    pages.touch(unlisted(run));
    Index const index = entries_.put({block, known, {kNone, kNone}});
    enlist(run.first, kEnds * index);
    if (run.count > 1) enlist(run.end() - 1, kEnds * index + 1);
    return true;
  }

  // Removes and returns the block at an address of the reservation, or a block of size 0.
  [[gnu::always_inline]] std::pair<Block, Known> remove(Address address) {
    std::size_t const page = page_of(address);
    for (Link link = page < lists_.size() ? lists_[page] : kNone; link != kNone;
         link = next(link)) {
      Entry const& entry = entries_[link / kEnds];
      if (entry.block.address != address) continue;
      Pages::Run const run = touched(entry.block);
      unlist(run.first, link);
      if (run.count > 1) unlist(run.end() - 1, link + 1);
      pages.untouch(unlisted(run));
      entries_.drop(link / kEnds);
      return {entry.block, entry.known};
    }
    return {};
  }

 private:
  using Link = std::uint32_t;  // one end of a block: twice its index, plus 1 for the last page
  static constexpr Link kEnds = 2;

  struct Entry {
    Block block;
    Known known;
    Link next[kEnds];  // in the lists of its first and last page (only one if they are the same)
  };

  Link& next(Link link) { return entries_[link / kEnds].next[link % kEnds]; }
  Link next(Link link) const { return entries_[link / kEnds].next[link % kEnds]; }

  // True if the block overlaps another one in this page, which is its first or last page.
  bool overlaps(Block const& block, std::size_t page) const {
    if (lists_[page] == kNone) return pages.touched({page, 1});
    for (Link link = lists_[page]; link != kNone; link = next(link)) {
      Block const& other = entries_[link / kEnds].block;
      if (other.address < block.end() && block.address < other.end()) return true;
    }
    return false;
  }

  // The run, of at least two pages, without its first and last page.
  static Pages::Run inner(Pages::Run run) { return {run.first + 1, run.count - 2}; }
  // The run without its first and last page if they have lists.
  Pages::Run unlisted(Pages::Run run) const {
    if (lists_[run.end() - 1] != kNone) --run.count;
    if (run.count > 0 && lists_[run.first] != kNone) run = {run.first + 1, run.count - 1};
    return run;
  }

  void enlist(std::size_t page, Link end) { next(end) = std::exchange(lists_[page], end); }
  void unlist(std::size_t page, Link end) {
    Link* link = &lists_[page];
    while (*link != end) link = &next(*link);
    *link = next(end);
  }

  std::map<Address, Block> blocks() const override {
    std::map<Address, Block> blocks;
    for (Link const first : lists_)
      for (Link link = first; link != kNone; link = next(link)) {
        Block const& block = entries_[link / kEnds].block;
        blocks.emplace(block.address, block);
      }
    return blocks;
  }

  std::vector<Link> lists_;  // the first link of each page
  Slots<Entry> entries_;
};

}  // namespace allocbench

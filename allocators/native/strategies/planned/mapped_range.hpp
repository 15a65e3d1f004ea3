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

#include "core/errors.hpp"
#include "parts/node.hpp"

namespace allocbench {

// Which pages of a reservation are mapped and have blocks. They are numbered from its start. A page
// is idle if it is mapped and no block
// touches it. Every call takes one step per 64 pages of its run.
class PageUse {
 public:
  struct Run {
    std::size_t first = 0, count = 0;
    std::size_t end() const { return first + count; }
  };

  // Marks pages as touched by a block; no block may touch them yet.
  void touch(Run run) {
    for_each_word(run, [this](Word& word, Bits part, std::size_t pages) {
      word.touched |= part;
      idle_ -= count(word.mapped, part, pages);
    });
  }
  // Marks pages as no longer touched by any block.
  void untouch(Run run) {
    for_each_word(run, [this](Word& word, Bits part, std::size_t pages) {
      word.touched &= ~part;
      idle_ += count(word.mapped, part, pages);
    });
    idle_end_ = std::max(idle_end_, run.end());
  }
  bool touched(Run run) const {
    return !all_words(run, [](Word const& word, Bits part) { return (word.touched & part) == 0; });
  }
  bool mapped(Run run) const {
    return all_words(run, [](Word const& word, Bits part) { return (word.mapped & part) == part; });
  }

  void set_mapped(Run run, bool mapped) {
    for_each_word(run, [this, mapped](Word& word, Bits part, std::size_t pages) {
      mapped_ -= count(word.mapped, part, pages);
      idle_ -= count(word.idle_pages(), part, pages);
      word.mapped = mapped ? word.mapped | part : word.mapped & ~part;
      mapped_ += count(word.mapped, part, pages);
      idle_ += count(word.idle_pages(), part, pages);
    });
    if (mapped) idle_end_ = std::max(idle_end_, run.end());
  }

  // The first run of mapped (or unmapped) pages within `in`; count 0 if there is none.
  Run first_run(Run in, bool mapped) const {
    auto const wanted = mapped ? &Word::mapped_pages : &Word::unmapped_pages;
    auto const other = mapped ? &Word::unmapped_pages : &Word::mapped_pages;
    std::size_t const begin = first(in, wanted);
    return {begin, first({begin, in.end() - begin}, other) - begin};
  }

  // The highest run of at most `most` idle pages; count 0 if there is none.
  Run idle_run(std::size_t most) {
    if (idle_ == 0) return {};
    std::size_t word = (idle_end_ - 1) / kBits;
    while (words_[word].idle_pages() == 0) --word;
    idle_end_ = (word + 1) * kBits - std::countl_zero(words_[word].idle_pages());
    std::size_t begin = idle_end_;
    while (begin > 0 && idle_end_ - begin < most && is_idle(begin - 1)) --begin;
    return {begin, idle_end_ - begin};
  }

  Run all() const { return {0, words_.size() * kBits}; }  // all pages used so far
  std::size_t mapped() const { return mapped_; }
  std::size_t idle() const { return idle_; }

 private:
  using Bits = std::uint64_t;  // one bit per page
  static constexpr std::size_t kBits = 64;

  struct Word {
    Bits mapped = 0, touched = 0;
    Bits mapped_pages() const { return mapped; }
    Bits unmapped_pages() const { return ~mapped; }
    Bits idle_pages() const { return mapped & ~touched; }
  };

  // The number of pages of a part, which has `pages`, in the set. Mostly, all or none are.
  static std::size_t count(Bits set, Bits part, std::size_t pages) {
    if ((set & part) == part) return pages;
    return (set & part) == 0 ? 0 : static_cast<std::size_t>(std::popcount(set & part));
  }

  // Calls `visit` with each word of the run, the part of the word, and its number of pages, until
  // `visit` returns false.
  template <class Visit>
  static bool visit_words(Run run, Visit visit) {
    if (run.count == 0) return true;
    if ((run.first ^ (run.end() - 1)) < kBits) [[likely]]
      return visit(run.first / kBits, ~Bits{0} >> (kBits - run.count) << run.first % kBits,
                   run.count);
    for (std::size_t page = run.first; page < run.end();) {
      std::size_t const pages = std::min(run.end() - page, kBits - page % kBits);
      if (!visit(page / kBits, ~Bits{0} >> (kBits - pages) << page % kBits, pages)) return false;
      page += pages;
    }
    return true;
  }
  template <class Change>
  void for_each_word(Run run, Change change) {
    if (all().count < run.end()) words_.resize(std::max(run.end() / kBits + 1, 2 * words_.size()));
    visit_words(run, [&](std::size_t word, Bits part, std::size_t pages) {
      change(words_[word], part, pages);
      return true;
    });
  }
  template <class Test>
  bool all_words(Run run, Test test) const {
    return visit_words(run, [&](std::size_t word, Bits part, std::size_t) {
      return test(word < words_.size() ? words_[word] : Word{}, part);
    });
  }

  // The first page of the run for which `of` has a bit set, or the end of the run.
  std::size_t first(Run run, Bits (Word::*of)() const) const {
    for (std::size_t page = run.first; page < run.end(); page = (page / kBits + 1) * kBits) {
      Word const word = page / kBits < words_.size() ? words_[page / kBits] : Word{};
      if (Bits const bits = (word.*of)() >> page % kBits)
        return std::min(run.end(), page + static_cast<std::size_t>(std::countr_zero(bits)));
    }
    return run.end();
  }

  bool is_idle(std::size_t page) const {
    return (words_[page / kBits].idle_pages() >> page % kBits & 1) != 0;
  }

  std::vector<Word> words_;
  std::size_t mapped_ = 0, idle_ = 0;
  std::size_t idle_end_ = 0;  // no page at or after this one is idle
};

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

  PageUse::Run touched(Block const& block) const {
    std::size_t const first = page_of(block.address);
    return {first, page_of(block.end() - 1) + 1 - first};
  }
  Address begin(PageUse::Run run) const { return address_ + run.first * page_; }
  Size bytes(PageUse::Run run) const { return run.count * page_; }
  Size page() const { return page_; }
  Size mapped() const { return pages.mapped() * page_; }  // bytes
  Size idle() const { return pages.idle() * page_; }      // bytes

  // Each mapped range as a segment.
  // Free blocks end where the mapped range ends: unmapped pages are not part of a segment.
  std::vector<Segment> snapshot() const {
    std::vector<Segment> segments;
    auto const known = blocks();
    Segment const all = tiled(address_, size_, known.begin(), known.end());
    auto block = all.blocks.begin();
    PageUse::Run rest = pages.all();
    for (;;) {
      PageUse::Run const run = pages.first_run(rest, true);
      if (run.count == 0) return segments;
      rest = {run.end(), rest.end() - run.end()};
      Segment& segment = segments.emplace_back(Segment{begin(run), bytes(run), {}});
      Address const end = segment.address + segment.size;
      while (block->end() <= segment.address) ++block;
      for (;; ++block) {
        Address const from = std::max(block->address, segment.address);
        Address const until = std::min(block->end(), end);
        segment.blocks.push_back({from, until - from, block->requested});
        if (block->end() >= end) break;
      }
    }
  }

  Size largest_free() const { return largest_free_in(snapshot()); }

  // Throws InvariantViolation.
  void check_pages() const {
    PageUse expected;
    for (auto const& [address, block] : blocks()) {
      PageUse::Run run = touched(block);
      require(pages.first_run(run, false).count == 0, "a page with a block is mapped");
      if (expected.touched({run.first, 1})) run = {run.first + 1, run.count - 1};
      expected.touch(run);
    }
    for (std::size_t page = 0; page < std::max(pages.all().count, expected.all().count); ++page)
      require(expected.touched({page, 1}) == pages.touched({page, 1}),
              "a page is marked as touched if and only if a block touches it");
  }

  PageUse pages;

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
  bool place(Block const& block, PageUse::Run run, Known const& known) {
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
      PageUse::Run const run = touched(entry.block);
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
  static PageUse::Run inner(PageUse::Run run) { return {run.first + 1, run.count - 2}; }
  // The run without its first and last page if they have lists.
  PageUse::Run unlisted(PageUse::Run run) const {
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

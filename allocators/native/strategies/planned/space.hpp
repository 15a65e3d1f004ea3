// strategies/planned/space.hpp: a reservation, the blocks placed in it, and its mapped pages.
// they lie. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "core/types.hpp"
#include "parts/slots.hpp"
#include "parts/tiled.hpp"
#include "strategies/planned/pages.hpp"

namespace allocbench {

// Blocks may lie anywhere, one beside the other; of each, something is `Known`. Nothing here calls
// the device: its owner maps the pages that a block touches. Each page has a list of the blocks
// that begin or end in it; one without a list that is touched lies within a block. So to place a
// block, and to take it, is a step for each block that begins or ends where it does, in the same
// pages, and one for each 64 pages in between.
template <class Known>
class Space {
 public:
  explicit Space(Size page) : page_(page) {}

  void open(Address address, Size size) {
    address_ = address;
    size_ = size;
  }
  bool is_open() const { return size_ != 0; }
  bool contains(Address at) const { return at - address_ < size_; }
  Address begin() const { return address_; }
  Size size() const { return size_; }

  // False, and nothing changes, unless all its bytes are addresses of the space without a block.
  bool place(Block const& block, Known const& known) {
    if (!contains(block.address) || !contains(block.end() - 1)) return false;
    Pages::Run const run = touched(block);
    if (lists_.size() < run.end()) lists_.resize(std::max(run.end(), 2 * lists_.size()), kNone);
    if (meets(block, run.first) || meets(block, run.end() - 1) || pages.touched(inner(run)))
      return false;
    pages.touch(unlisted(run));
    Index const at = placed_.put({block, known, {kNone, kNone}});
    enlist(run.first, kEnds * at);
    if (run.count > 1) enlist(run.end() - 1, kEnds * at + 1);
    return true;
  }

  // The block at an address of the space, which is forgotten, or a block of size 0.
  std::pair<Block, Known> take(Address address) {
    std::size_t const page = (address - address_) / page_;
    for (Link at = page < lists_.size() ? lists_[page] : kNone; at != kNone; at = next(at)) {
      Placed const& placed = placed_[at / kEnds];
      if (placed.block.address != address) continue;
      Pages::Run const run = touched(placed.block);
      unlist(run.first, at);
      if (run.count > 1) unlist(run.end() - 1, at + 1);
      pages.leave(unlisted(run));
      placed_.drop(at / kEnds);
      return {placed.block, placed.known};
    }
    return {};
  }

  Pages::Run touched(Block const& block) const {
    std::size_t const first = (block.address - address_) / page_;
    return {first, (block.end() - 1 - address_) / page_ + 1 - first};
  }
  Address begin(Pages::Run run) const { return address_ + run.first * page_; }
  Size bytes(Pages::Run run) const { return run.count * page_; }
  Size mapped() const { return pages.mapped() * page_; }  // bytes

  // The mapped parts, each a segment.
  std::vector<Segment> snapshot() const;
  Size largest_free() const;
  // Throws InvariantViolation.
  void check() const;

  Pages pages;

 private:
  using Link = std::uint32_t;  // an end of a block: its index twice, and 1 more for the last page
  static constexpr Link kEnds = 2;

  struct Placed {
    Block block;
    Known known;
    Link next[kEnds];  // in the lists of its first page and, if that is another, of its last
  };

  Link& next(Link at) { return placed_[at / kEnds].next[at % kEnds]; }
  Link next(Link at) const { return placed_[at / kEnds].next[at % kEnds]; }

  // Whether any byte of the block, whose first or last page this is, is taken there.
  bool meets(Block const& block, std::size_t page) const {
    if (lists_[page] == kNone) return pages.touched({page, 1});
    for (Link at = lists_[page]; at != kNone; at = next(at)) {
      Block const& other = placed_[at / kEnds].block;
      if (other.address < block.end() && block.address < other.end()) return true;
    }
    return false;
  }

  // Less its first and its last page.
  static Pages::Run inner(Pages::Run run) {
    return run.count <= 2 ? Pages::Run{run.first, 0} : Pages::Run{run.first + 1, run.count - 2};
  }
  // Less the first and the last page when blocks begin or end there.
  Pages::Run unlisted(Pages::Run run) const {
    if (lists_[run.end() - 1] != kNone) --run.count;
    if (run.count > 0 && lists_[run.first] != kNone) run = {run.first + 1, run.count - 1};
    return run;
  }

  void enlist(std::size_t page, Link end) { next(end) = std::exchange(lists_[page], end); }
  void unlist(std::size_t page, Link end) {
    Link* at = &lists_[page];
    while (*at != end) at = &next(*at);
    *at = next(end);
  }

  std::map<Address, Block> blocks() const {
    std::map<Address, Block> found;
    for (Link const first : lists_)
      for (Link at = first; at != kNone; at = next(at)) {
        Block const& block = placed_[at / kEnds].block;
        found.emplace(block.address, block);
      }
    return found;
  }

  Address address_ = 0;
  Size size_ = 0;
  Size page_;
  std::vector<Link> lists_;  // by page, the first in each
  Slots<Placed> placed_;
};

// Free blocks end where the memory does: what is not mapped lies in no segment.
template <class Known>
std::vector<Segment> Space<Known>::snapshot() const {
  std::vector<Segment> found;
  auto const placed = blocks();
  Segment const all = tiled(address_, size_, placed.begin(), placed.end());
  auto block = all.blocks.begin();
  Pages::Run rest = pages.all();
  for (;;) {
    Pages::Run const run = pages.first_run(rest, true);
    if (run.count == 0) return found;
    rest = {run.end(), rest.end() - run.end()};
    Segment& segment = found.emplace_back(Segment{begin(run), bytes(run), {}});
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

template <class Known>
Size Space<Known>::largest_free() const {
  Size largest = 0;
  for (Segment const& segment : snapshot())
    for (Block const& block : segment.blocks)
      if (!block.allocated()) largest = std::max(largest, block.size);
  return largest;
}

template <class Known>
void Space<Known>::check() const {
  Pages found;
  for (auto const& [address, block] : blocks()) {
    Pages::Run run = touched(block);
    require(pages.first_run(run, false).count == 0, "a page with a block is mapped");
    if (found.touched({run.first, 1})) run = {run.first + 1, run.count - 1};
    found.touch(run);
  }
  for (std::size_t page = 0; page < std::max(pages.all().count, found.all().count); ++page)
    require(found.touched({page, 1}) == pages.touched({page, 1}),
            "a page knows whether blocks touch it");
}

}  // namespace allocbench

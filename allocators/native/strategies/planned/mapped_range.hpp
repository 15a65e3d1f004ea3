// strategies/planned/mapped_range.hpp: a reservation whose pages are mapped one by one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <map>
#include <vector>

#include "core/types.hpp"
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

}  // namespace allocbench

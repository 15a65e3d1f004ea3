// gpu/pages.hpp: the pages of a card that segments take.
// SPDX-License-Identifier: Apache-2.0
//
// As measured on an H100 (benchmarks/results/gpu): a segment takes whole pages of 2 MiB, and those
// of up to half a page share pages, at multiples of 512 bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>

#include "core/types.hpp"

namespace allocbench {

// The end of each range, by its begin.
class Ranges : public std::map<Address, Address> {
 public:
  // The range must not overlap any other.
  void join(Address begin, Address end) {
    auto next = lower_bound(begin);
    if (next != this->end() && next->first == end) {
      end = next->second;
      next = erase(next);
    }
    if (next != this->begin() && std::prev(next)->second == begin) {
      std::prev(next)->second = end;
    } else {
      emplace_hint(next, begin, end);
    }
  }

  // Cuts `size` bytes off the begin of a range, or off its end. Returns their address.
  Address cut(iterator range, Size size, bool from_end = false) {
    auto const [begin, end] = *range;
    if (from_end && end - begin > size) return range->second = end - size;
    auto const next = erase(range);
    if (end - begin > size) emplace_hint(next, begin + size, end);
    return begin;
  }
};

inline constexpr Size kPage = 2 * kMiB;

struct Range {
  Address begin = 0;
  Size size = 0;
};

// Not thread-safe.
class Pages {
 public:
  // Takes whole pages of the card, which follow one another; returns 0 if there are too few.
  using Take = std::function<Address(Size)>;
  using Give = std::function<void(Range)>;  // returns what one call of Take took

  explicit Pages(Size page = kPage) : page_(page) {}

  // A segment, or 0. Like `release` not inlined, so that a device without pages saves no registers.
  [[gnu::noinline]] Address allocate(Size size, Take const& take) {
    if (size > ~Size{0} - page_) return 0;
    Address const segment =
        shares(size) ? allocate_shared(in_units(size), take) : take(round_up(size, page_));
    if (segment != 0) segments_[segment] = size;
    return segment;
  }

  // False if no segment begins at the address.
  [[gnu::noinline]] bool release(Address segment, Give const& give) {
    auto const entry = segments_.find(segment);
    if (entry == segments_.end()) return false;
    Size const size = entry->second;
    segments_.erase(entry);
    if (!shares(size)) {
      give({segment, round_up(size, page_)});
      return true;
    }
    auto const shared = std::prev(shared_.upper_bound(segment));
    auto& [begin, page] = *shared;
    page.holes.join(segment, segment + in_units(size));
    if (--page.live == 0) {
      give({begin, page_});
      shared_.erase(shared);
    }
    return true;
  }

  // The requested bytes of the segment that contains an address; size 0 if none does.
  Range around(Address address) const {
    auto const after = segments_.upper_bound(address);
    if (after == segments_.begin()) return {};
    auto const& [begin, size] = *std::prev(after);
    return address < begin + size ? Range{begin, size} : Range{};
  }

  std::map<Address, Size> const& segments() const { return segments_; }  // requested bytes

 private:
  static constexpr Size kSharedUnit = 512;
  static Size in_units(Size size) { return round_up(std::max<Size>(size, 1), kSharedUnit); }

  struct SharedPage {
    Ranges holes;
    std::size_t live = 0;
  };

  bool shares(Size size) const { return size <= page_ / 2; }

  // The first hole of the lowest page that is large enough, else the begin of a new page.
  Address allocate_shared(Size size, Take const& take) {
    auto const place = [&](SharedPage& page) -> Address {
      auto const fits = [&](auto const& hole) { return hole.second - hole.first >= size; };
      auto const hole = std::ranges::find_if(page.holes, fits);
      if (hole == page.holes.end()) return 0;
      ++page.live;
      return page.holes.cut(hole, size);
    };
    for (auto& [begin, page] : shared_)
      if (Address const address = place(page)) return address;
    Address const begin = take(page_);
    if (begin == 0) return 0;
    SharedPage& page = shared_[begin];
    page.holes.join(begin, begin + page_);
    return place(page);
  }

  Size page_;
  std::map<Address, Size> segments_;
  std::map<Address, SharedPage> shared_;
};

}  // namespace allocbench

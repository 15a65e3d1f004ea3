// gpu/pages.cpp: the pages of a card that segments take.
// SPDX-License-Identifier: Apache-2.0
#include "gpu/pages.hpp"

#include <algorithm>
#include <iterator>

namespace allocbench {
namespace {

constexpr Size kSharedUnit = 512;

Size in_units(Size size) { return round_up(std::max<Size>(size, 1), kSharedUnit); }

}  // namespace

Address Pages::allocate(Size size, Take const& take) {
  if (size > ~Size{0} - page_) return 0;
  Address const segment =
      shares(size) ? allocate_shared(in_units(size), take) : take(round_up(size, page_));
  if (segment != 0) segments_[segment] = size;
  return segment;
}

bool Pages::release(Address segment, Give const& give) {
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

Range Pages::around(Address address) const {
  auto const after = segments_.upper_bound(address);
  if (after == segments_.begin()) return {};
  auto const& [begin, size] = *std::prev(after);
  return address < begin + size ? Range{begin, size} : Range{};
}

// The first hole of the lowest page that is large enough, else the begin of a new page.
Address Pages::allocate_shared(Size size, Take const& take) {
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

}  // namespace allocbench

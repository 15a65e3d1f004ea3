// gpu/driver_pool.cpp: a model of one memory pool behind cudaMallocAsync (cuMemPool).
// SPDX-License-Identifier: Apache-2.0
#include "gpu/driver_pool.hpp"

#include <algorithm>
#include <iterator>

namespace allocbench {
namespace {

Size occupied(Size size) {
  constexpr Size kUnit = 512;
  return round_up(std::max<Size>(size, 1), kUnit);
}

}  // namespace

void DriverPool::open(Address begin, Size size) {
  begin_ = begin;
  addresses_ = round_down(size, kPage);
  add_hole(begin, begin + addresses_);
}

Address DriverPool::allocate(Size size, Stream stream, Ended const& ended, Take const& take) {
  if (size > addresses_) return 0;
  auto const own = freed_.find(stream);
  Address block = own == freed_.end() ? 0 : own->second.cut(occupied(size));
  if (block == 0) {
    settle(ended);
    auto const fit = by_size_.lower_bound({occupied(size), 0, 0});
    if (fit == by_size_.end()) return 0;
    auto const hole = holes_.find(std::get<2>(*fit));
    block = hole->first;
    Address const end = block + occupied(size), hole_end = hole->second.end;
    remove_hole(hole);
    if (hole_end > end) add_hole(end, hole_end);
    if (!back(block, end, take)) {
      add_hole(block, end);
      return 0;
    }
  }
  used_.add(size);
  return block;
}

void DriverPool::Freed::join(Address begin, Address end) {
  auto const after = ranges_.lower_bound(begin);
  if (after != ranges_.end() && after->first == end)
    by_size_.erase({after->second - after->first, after->first});
  if (after != ranges_.begin() && std::prev(after)->second == begin)
    by_size_.erase({begin - std::prev(after)->first, std::prev(after)->first});
  ranges_.join(begin, end);
  auto const joined = std::prev(ranges_.upper_bound(begin));
  by_size_.emplace(joined->second - joined->first, joined->first);
}

Address DriverPool::Freed::cut(Size size) {
  auto const fit = by_size_.lower_bound({size, 0});
  if (fit == by_size_.end()) return 0;
  auto const [length, begin] = *fit;
  by_size_.erase(fit);
  if (length > size) by_size_.emplace(length - size, begin + size);
  return ranges_.cut(ranges_.find(begin), size);
}

void DriverPool::release(Address block, Size size, Stream stream) {
  used_.subtract(size);
  freed_[stream].join(block, block + occupied(size));
}

void DriverPool::settle(Ended const& ended) {
  std::erase_if(freed_, [&](auto const& entry) {
    if (!ended(entry.first)) return false;
    for (auto const& [begin, end] : entry.second.ranges()) add_hole(begin, end);
    return true;
  });
}

Size DriverPool::shrink(Size most) {
  Size const before = reserved_.current;
  visit_free_pages([&](Size page) {
    if (reserved_.current <= most) return false;
    backed_[page] = false;
    reserved_.subtract(kPage);
    return true;
  });
  return before - reserved_.current;
}

void DriverPool::add_hole(Address begin, Address end) {
  auto next = holes_.lower_bound(begin);
  if (next != holes_.end() && next->first == end) {
    end = next->second.end;
    remove_hole(next);
  }
  next = holes_.lower_bound(begin);
  if (next != holes_.begin() && std::prev(next)->second.end == begin) {
    auto const before = std::prev(next);
    begin = before->first;
    remove_hole(before);
  }
  holes_[begin] = {end, --age_};
  by_size_.emplace(end - begin, age_, begin);
}

void DriverPool::remove_hole(std::map<Address, Hole>::iterator hole) {
  by_size_.erase({hole->second.end - hole->first, hole->second.age, hole->first});
  holes_.erase(hole);
}

// Puts memory behind a range: that of pages in which nothing is, then more of the card.
bool DriverPool::back(Address begin, Address end, Take const& take) {
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
template <typename Visit>
void DriverPool::visit_free_pages(Visit visit) {
  for (auto const& [begin, hole] : holes_) {
    Size const last = std::min<Size>(backed_.size(), (hole.end - begin_) / kPage);
    for (Size page = round_up(begin - begin_, kPage) / kPage; page < last; ++page)
      if (backed_[page] && !visit(page)) return;
  }
}

}  // namespace allocbench

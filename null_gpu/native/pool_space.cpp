// null_gpu/pool_space.cpp: places and bytes of a memory pool of cudaMallocAsync.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/pool_space.hpp"

#include <algorithm>
#include <iterator>

namespace allocbench::null_gpu {

// Joined to those that touch it.
void join_range(std::map<Address, Address>& ranges, Address begin, Address end) {
  auto next = ranges.lower_bound(begin);
  if (next != ranges.end() && next->first == end) {
    end = next->second;
    next = ranges.erase(next);
  }
  if (next != ranges.begin()) {
    auto const before = std::prev(next);
    if (before->second == begin) {
      before->second = end;
      return;
    }
  }
  ranges.emplace(begin, end);
}

PoolSpace::PoolSpace(Size addresses) : backed_(addresses / kPoolUnit, false) {
  add_hole(0, backed_.size() * kPoolUnit);
}

Size PoolSpace::occupied(Size size) {
  constexpr Size kUnit = 512;
  return round_up(std::max<Size>(size, 1), kUnit);
}

bool PoolSpace::reuse(Size size, std::uint64_t stream, Size* offset) {
  size = occupied(size);
  auto const own = freed_.find(stream);
  if (own == freed_.end()) return false;
  Holes& ranges = own->second;
  auto found = ranges.end();
  for (auto range = ranges.begin(); range != ranges.end(); ++range) {
    Size const length = range->second - range->first;
    bool const less = found == ranges.end() || length < found->second - found->first;
    if (length >= size && less) found = range;
  }
  if (found == ranges.end()) return false;
  auto const [begin, end] = *found;
  ranges.erase(found);
  if (end > begin + size) ranges.emplace(begin + size, end);
  *offset = begin;
  return true;
}

bool PoolSpace::allocate(Size size, Take const& take, Size* offset) {
  size = occupied(size);
  auto const fit = by_size_.lower_bound({size, 0, 0});
  if (fit == by_size_.end()) return false;
  auto const hole = holes_.find(std::get<2>(*fit));
  Size const begin = hole->first, end = hole->second.end;
  remove_hole(hole);
  if (end > begin + size) add_hole(begin + size, end);
  if (!back(begin, begin + size, take)) {
    add_hole(begin, begin + size);
    return false;
  }
  *offset = begin;
  return true;
}

void PoolSpace::release(Size offset, Size size, std::uint64_t stream) {
  join_range(freed_[stream], offset, offset + occupied(size));
}

void PoolSpace::settle(std::uint64_t stream) {
  auto const own = freed_.find(stream);
  if (own == freed_.end()) return;
  for (auto const& [begin, end] : own->second) add_hole(begin, end);
  freed_.erase(own);
}

Size PoolSpace::shrink(Size most) {
  Size const before = reserved();
  if (before <= most) return 0;
  visit_free_pages([&](Size page) {
    if (reserved() <= most) return false;
    backed_[page] = false;
    --pages_;
    return true;
  });
  return before - reserved();
}

void PoolSpace::add_hole(Size begin, Size end) {
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

void PoolSpace::remove_hole(std::map<Size, Hole>::iterator hole) {
  by_size_.erase({hole->second.end - hole->first, hole->second.age, hole->first});
  holes_.erase(hole);
}

// Puts memory behind a range: that of pages in which nothing is, then more of the card.
bool PoolSpace::back(Size begin, Size end, Take const& take) {
  std::vector<Size> without;
  for (Size page = begin / kPoolUnit; page * kPoolUnit < end; ++page) {
    if (!backed_[page]) without.push_back(page);
  }
  auto next = without.begin();
  if (next == without.end()) return true;
  visit_free_pages([&](Size page) {
    if (next == without.end()) return false;
    backed_[page] = false;
    backed_[*next++] = true;
    return true;
  });
  for (; next != without.end(); ++next) {
    if (!take()) return false;
    backed_[*next] = true;
    ++pages_;
  }
  return true;
}

// Calls `visit` with each page that has memory and in which nothing is, until it returns false.
template <typename Visit>
void PoolSpace::visit_free_pages(Visit visit) {
  for (auto const& [begin, hole] : holes_) {
    for (Size page = (begin + kPoolUnit - 1) / kPoolUnit; (page + 1) * kPoolUnit <= hole.end;
         ++page) {
      if (backed_[page] && !visit(page)) return;
    }
  }
}

}  // namespace allocbench::null_gpu

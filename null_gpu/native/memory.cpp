// null_gpu/memory.cpp: the memory of one device: addresses without memory, and counted bytes.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace allocbench::null_gpu {

namespace {

constexpr Size kMostShared = Size{1} << 20, kSharedUnit = 512;

}  // namespace

DeviceMemory::DeviceMemory(int device, int card, Size capacity, Size context, bool ascending,
                           Usage& usage)
    : usage_(usage), card_(card), capacity_(capacity), context_(context), ascending_(ascending) {
  Address const begin = kFirstAddress + device * kAddressesPerDevice;
  void* const wanted = reinterpret_cast<void*>(begin);
  void* const mapped =
      mmap(wanted, kAddressesPerDevice, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (mapped != wanted) {
    std::fprintf(stderr, "error: null GPU: cannot reserve %llu GiB of addresses for device %d\n",
                 static_cast<unsigned long long>(kAddressesPerDevice >> 30), device);
    std::_Exit(2);
  }
  holes_[begin] = kAddressesPerDevice;
}

Status DeviceMemory::allocate(Size size, Address* address) {
  std::lock_guard const lock(mutex_);
  if (size <= kMostShared) return allocate_shared(std::max<Size>(size, 1), address);
  Size const rounded = round_up(size, kPage);
  if (Status const status = count(rounded)) return status;
  if (!take_hole(rounded, address)) {
    uncount(rounded);
    return kOutOfMemory;
  }
  live_[*address] = {rounded, size};
  return kSuccess;
}

Status DeviceMemory::release(Address address) {
  std::lock_guard const lock(mutex_);
  auto const entry = live_.find(address);
  if (entry == live_.end()) return kInvalidValue;
  if (entry->second.size < kPage) {
    release_shared(address, entry->second.size);
  } else {
    uncount(entry->second.size);
    give_hole({address, entry->second.size});
  }
  live_.erase(entry);
  return kSuccess;
}

Status DeviceMemory::allocate_shared(Size size, Address* address) {
  Size const rounded = round_up(size, kSharedUnit);
  auto const place = [&](SharedPage& page) {
    auto const fits = [&](auto const& hole) { return hole.second - hole.first >= rounded; };
    auto const hole = std::ranges::find_if(page.holes, fits);
    if (hole == page.holes.end()) return false;
    auto const [begin, end] = *hole;
    page.holes.erase(hole);
    if (end > begin + rounded) page.holes.emplace(begin + rounded, end);
    ++page.live;
    *address = begin;
    live_[begin] = {rounded, size};
    return true;
  };
  for (auto& [begin, page] : shared_) {
    if (place(page)) {
      ++requests_;
      return kSuccess;
    }
  }
  if (Status const status = count(kPage)) return status;
  Address begin = 0;
  if (!take_hole(kPage, &begin)) {
    uncount(kPage);
    return kOutOfMemory;
  }
  SharedPage& page = shared_[begin];
  page.holes.emplace(begin, begin + kPage);
  place(page);
  return kSuccess;
}

void DeviceMemory::release_shared(Address begin, Size size) {
  auto const entry = std::prev(shared_.upper_bound(begin));
  SharedPage& page = entry->second;
  if (--page.live == 0) {
    uncount(kPage);
    give_hole({entry->first, kPage});
    shared_.erase(entry);
  } else {
    join_range(page.holes, begin, begin + size);
  }
}

std::size_t DeviceMemory::release_all() {
  std::lock_guard const lock(mutex_);
  std::size_t const number = live_.size();
  for (auto const& [begin, allocation] : live_) {
    if (allocation.size < kPage) {
      release_shared(begin, allocation.size);
    } else {
      uncount(allocation.size);
      give_hole({begin, allocation.size});
    }
  }
  live_.clear();
  return number;
}

Status DeviceMemory::reserve(Size size, Address* address) {
  std::lock_guard const lock(mutex_);
  Size const rounded = round_up(size, kPage);
  if (!take_hole(rounded, address)) return kOutOfMemory;
  reserved_[*address] = rounded;
  return kSuccess;
}

Status DeviceMemory::unreserve(Address address) {
  std::lock_guard const lock(mutex_);
  auto const entry = reserved_.find(address);
  if (entry == reserved_.end()) return kInvalidValue;
  give_hole({entry->first, entry->second});
  reserved_.erase(entry);
  return kSuccess;
}

Status DeviceMemory::take(Size size) {
  std::lock_guard const lock(mutex_);
  Status const status = count(size);
  if (status == kSuccess) taken_ += size;
  return status;
}

void DeviceMemory::give(Size size) {
  std::lock_guard const lock(mutex_);
  taken_ -= size;
  uncount(size);
}

Range DeviceMemory::range_of(Address address) {
  std::lock_guard const lock(mutex_);
  if (auto after = live_.upper_bound(address); after != live_.begin()) {
    auto const& [begin, allocation] = *--after;
    if (address < begin + allocation.requested) return {begin, allocation.requested};
  }
  if (auto after = reserved_.upper_bound(address); after != reserved_.begin()) {
    auto const [begin, size] = *--after;
    if (address < begin + size) return {begin, size};
  }
  return {};
}

Size DeviceMemory::free() {
  std::lock_guard const lock(mutex_);
  open_context();
  return capacity_ - std::min(capacity_, usage_.used(card_));
}

DeviceMemory::Counters DeviceMemory::counters() const {
  std::lock_guard const lock(mutex_);
  return {capacity_, used_, peak_, requests_, refused_};
}

DeviceMemory::Allocations DeviceMemory::allocations() const {
  std::lock_guard const lock(mutex_);
  Allocations found{live_.size(), taken_};
  for (auto const& [begin, allocation] : live_) found.requested += allocation.requested;
  return found;
}

void DeviceMemory::resize(Size capacity) {
  std::lock_guard const lock(mutex_);
  capacity_ = capacity;
}

bool DeviceMemory::take_hole(Size size, Address* address) {
  auto const fits = [&](auto const& candidate) { return candidate.second >= size; };
  auto hole = holes_.end();
  if (ascending_) {
    hole = std::ranges::find_if(holes_, fits);
  } else if (auto const last = std::find_if(holes_.rbegin(), holes_.rend(), fits);
             last != holes_.rend()) {
    hole = std::prev(last.base());
  }
  if (hole == holes_.end()) return false;
  auto const [begin, length] = *hole;
  holes_.erase(hole);
  *address = ascending_ ? begin : begin + length - size;
  if (length > size) holes_[ascending_ ? begin + size : begin] = length - size;
  return true;
}

void DeviceMemory::give_hole(Range range) {
  auto next = holes_.upper_bound(range.begin);
  if (next != holes_.end() && range.begin + range.size == next->first) {
    range.size += next->second;
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    auto const before = std::prev(next);
    if (before->first + before->second == range.begin) {
      before->second += range.size;
      return;
    }
  }
  holes_[range.begin] = range.size;
}

Status DeviceMemory::count(Size size) {
  ++requests_;
  if (!open_context() || !usage_.take(card_, size, capacity_)) {
    ++refused_;
    return kOutOfMemory;
  }
  used_ += size;
  peak_ = std::max(peak_, used_);
  return kSuccess;
}

void DeviceMemory::uncount(Size size) {
  used_ -= size;
  usage_.give(card_, size);
}

// Counts the context of this process once; false if the card has no room for it.
bool DeviceMemory::open_context() {
  if (open_ || !usage_.take(card_, context_, capacity_)) return open_;
  used_ += context_;
  peak_ = std::max(peak_, used_);
  return open_ = true;
}

}  // namespace allocbench::null_gpu

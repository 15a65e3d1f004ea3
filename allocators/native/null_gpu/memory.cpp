// null_gpu/memory.cpp: see memory.hpp.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace allocbench::null_gpu {

DeviceMemory::DeviceMemory(int device, Size capacity, Size context)
    : capacity_(capacity), used_(std::min(capacity, context)) {
  Address const begin = kFirstAddress + device * kAddressesPerDevice;
  void* const wanted = reinterpret_cast<void*>(begin);
  void* const got = mmap(wanted, kAddressesPerDevice, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (got != wanted) {
    std::fprintf(stderr, "error: null GPU: cannot reserve 4 TiB of addresses for device %d\n",
                 device);
    std::_Exit(2);
  }
  peak_ = used_;
  holes_[begin] = kAddressesPerDevice;
}

Status DeviceMemory::allocate(Size size, Address* address) {
  std::lock_guard const lock(mutex_);
  Size const rounded = round_up(std::max<Size>(size, 1), kPage);
  if (Status const status = count(rounded)) return status;
  if (!take_hole(rounded, address)) {
    used_ -= rounded;
    return kOutOfMemory;
  }
  live_[*address] = rounded;
  return kSuccess;
}

Status DeviceMemory::release(Address address) {
  std::lock_guard const lock(mutex_);
  auto const found = live_.find(address);
  if (found == live_.end()) return kInvalidValue;
  used_ -= found->second;
  give_hole({found->first, found->second});
  live_.erase(found);
  return kSuccess;
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
  auto const found = reserved_.find(address);
  if (found == reserved_.end()) return kInvalidValue;
  give_hole({found->first, found->second});
  reserved_.erase(found);
  return kSuccess;
}

Status DeviceMemory::take(Size size) {
  std::lock_guard const lock(mutex_);
  return count(size);
}

void DeviceMemory::give(Size size) {
  std::lock_guard const lock(mutex_);
  used_ -= size;
}

Range DeviceMemory::range_of(Address address) {
  std::lock_guard const lock(mutex_);
  for (auto const* ranges : {&live_, &reserved_}) {
    auto after = ranges->upper_bound(address);
    if (after == ranges->begin()) continue;
    auto const [begin, size] = *std::prev(after);
    if (address < begin + size) return {begin, size};
  }
  return {};
}

Size DeviceMemory::free() const {
  std::lock_guard const lock(mutex_);
  return capacity_ - used_;
}

DeviceMemory::Seen DeviceMemory::seen() const {
  std::lock_guard const lock(mutex_);
  return {capacity_, used_, peak_, requests_, refused_};
}

bool DeviceMemory::take_hole(Size size, Address* address) {
  auto const hole =
      std::ranges::find_if(holes_, [&](auto const& one) { return one.second >= size; });
  if (hole == holes_.end()) return false;
  auto const [begin, length] = *hole;
  holes_.erase(hole);
  if (length > size) holes_[begin + size] = length - size;
  *address = begin;
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
  if (size > capacity_ - used_) {
    ++refused_;
    return kOutOfMemory;
  }
  used_ += size;
  peak_ = std::max(peak_, used_);
  return kSuccess;
}

}  // namespace allocbench::null_gpu

// null_gpu/memory.cpp: the memory of one device: addresses without memory, and counted bytes.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace allocbench::null_gpu {

DeviceMemory::DeviceMemory(int device, int card, Size capacity, Size context, bool ascending,
                           Usage& usage)
    : usage_(usage), card_(card), capacity_(capacity), context_(context), ascending_(ascending) {
  Address const begin = kFirstAddress + device * kAddressesPerDevice;
  void* const wanted = reinterpret_cast<void*>(begin);
  void* const mapped =
      mmap(wanted, kAddressesPerDevice, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (mapped != wanted) {
    std::fprintf(stderr, "error: null GPU: cannot reserve 4 TiB of addresses for device %d\n",
                 device);
    std::_Exit(2);
  }
  holes_[begin] = kAddressesPerDevice;
}

Status DeviceMemory::allocate(Size size, Address* address) {
  std::lock_guard const lock(mutex_);
  Size const rounded = round_up(std::max<Size>(size, 1), kPage);
  if (Status const status = count(rounded)) return status;
  if (!take_hole(rounded, address)) {
    uncount(rounded);
    return kOutOfMemory;
  }
  live_[*address] = rounded;
  return kSuccess;
}

Status DeviceMemory::release(Address address) {
  std::lock_guard const lock(mutex_);
  auto const entry = live_.find(address);
  if (entry == live_.end()) return kInvalidValue;
  uncount(entry->second);
  give_hole({entry->first, entry->second});
  live_.erase(entry);
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
  auto const entry = reserved_.find(address);
  if (entry == reserved_.end()) return kInvalidValue;
  give_hole({entry->first, entry->second});
  reserved_.erase(entry);
  return kSuccess;
}

Status DeviceMemory::take(Size size) {
  std::lock_guard const lock(mutex_);
  return count(size);
}

void DeviceMemory::give(Size size) {
  std::lock_guard const lock(mutex_);
  uncount(size);
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

Size DeviceMemory::free() {
  std::lock_guard const lock(mutex_);
  open_context();
  return capacity_ - usage_.used(card_);
}

DeviceMemory::Counters DeviceMemory::counters() const {
  std::lock_guard const lock(mutex_);
  return {capacity_, used_, peak_, requests_, refused_};
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

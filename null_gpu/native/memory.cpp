// native/memory.cpp: the memory of one device: addresses without memory, and counted bytes.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/memory.hpp"

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
    std::fprintf(stderr, "error: null GPU: cannot reserve %llu GiB of addresses for device %d\n",
                 static_cast<unsigned long long>(kAddressesPerDevice >> 30), device);
    std::_Exit(2);
  }
  addresses_.join(begin, begin + kAddressesPerDevice);
}

Status DeviceMemory::allocate(Size size, Address* address) {
  std::lock_guard const lock(mutex_);
  ++requests_;
  Address const segment = pages_.allocate(size, [&](Size pages) { return take_pages(pages); });
  if (segment == 0) return kOutOfMemory;
  *address = segment;
  return kSuccess;
}

Status DeviceMemory::release(Address address) {
  std::lock_guard const lock(mutex_);
  bool const held = pages_.release(address, [&](Range pages) { give_pages(pages); });
  return held ? kSuccess : kInvalidValue;
}

std::size_t DeviceMemory::release_all() {
  std::lock_guard const lock(mutex_);
  auto const& segments = pages_.segments();
  std::size_t const number = segments.size();
  while (!segments.empty())
    pages_.release(segments.begin()->first, [&](Range pages) { give_pages(pages); });
  return number;
}

Status DeviceMemory::reserve(Size size, Address* address) {
  std::lock_guard const lock(mutex_);
  Size const rounded = round_up(size, kPage);
  Address const begin = take_addresses(rounded);
  if (begin == 0) return kOutOfMemory;
  reserved_[begin] = rounded;
  *address = begin;
  return kSuccess;
}

Status DeviceMemory::unreserve(Address address) {
  std::lock_guard const lock(mutex_);
  auto const entry = reserved_.find(address);
  if (entry == reserved_.end()) return kInvalidValue;
  addresses_.join(address, address + entry->second);
  reserved_.erase(entry);
  return kSuccess;
}

Status DeviceMemory::take(Size size) {
  std::lock_guard const lock(mutex_);
  ++requests_;
  if (!count(size)) return kOutOfMemory;
  taken_ += size;
  return kSuccess;
}

void DeviceMemory::give(Size size) {
  std::lock_guard const lock(mutex_);
  taken_ -= size;
  uncount(size);
}

Range DeviceMemory::range_of(Address address) {
  std::lock_guard const lock(mutex_);
  if (Range const segment = pages_.around(address); segment.size != 0) return segment;
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
  Allocations found{pages_.segments().size(), taken_};
  for (auto const& [begin, requested] : pages_.segments()) found.requested += requested;
  return found;
}

void DeviceMemory::resize(Size capacity) {
  std::lock_guard const lock(mutex_);
  capacity_ = capacity;
}

// Memory with an address; 0 if the card or the addresses do not suffice.
Address DeviceMemory::take_pages(Size size) {
  if (!count(size)) return 0;
  Address const address = take_addresses(size);
  if (address == 0) uncount(size);
  return address;
}

void DeviceMemory::give_pages(Range range) {
  uncount(range.size);
  addresses_.join(range.begin, range.begin + range.size);
}

Address DeviceMemory::take_addresses(Size size) {
  auto const fits = [&](auto const& range) { return range.second - range.first >= size; };
  auto range = addresses_.end();
  if (ascending_) {
    range = std::ranges::find_if(addresses_, fits);
  } else if (auto const last = std::find_if(addresses_.rbegin(), addresses_.rend(), fits);
             last != addresses_.rend()) {
    range = std::prev(last.base());
  }
  return range == addresses_.end() ? 0 : addresses_.cut(range, size, !ascending_);
}

bool DeviceMemory::count(Size size) {
  if (!open_context() || !usage_.take(card_, size, capacity_)) {
    ++refused_;
    return false;
  }
  used_ += size;
  peak_ = std::max(peak_, used_);
  return true;
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

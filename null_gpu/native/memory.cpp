// native/memory.cpp: the memory of a device: addresses without memory, and counted bytes.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace allocbench::null_gpu {

Usage::Usage(std::string const& path) : process_(getpid()) {
  void* table = MAP_FAILED;
  if (!path.empty()) file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file_ >= 0 && ftruncate(file_, sizeof(Table)) == 0) {
    table = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  }
  if (table == MAP_FAILED || !take_slot()) {
    slot_ = 0;
    if (file_ >= 0) close(file_);
    file_ = -1;
    table =
        mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (table == MAP_FAILED) {
    std::fprintf(stderr, "error: null GPU: no memory for the counters of its cards\n");
    std::_Exit(2);
  }
  table_ = static_cast<Table*>(table);
  reclaim(slot_);  // what an earlier owner of the slot left
}

bool Usage::take(int card, Size size, Size capacity) {
  if (!has_slot()) return false;
  auto& total = table_->total[card];
  for (bool first_try = true;; first_try = false) {
    Size used = total;
    while (used <= capacity && size <= capacity - used) {
      if (total.compare_exchange_weak(used, used + size)) {
        table_->of_slot[slot_][card] += size;
        held_ += size;
        return true;
      }
    }
    if (!first_try || file_ < 0) return false;
    reclaim_all();
  }
}

void Usage::give(int card, Size size) {
  if (!has_slot()) return;
  held_ -= size;
  table_->of_slot[slot_][card] -= size;
  table_->total[card] -= size;
}

Size Usage::used(int card) {
  if (file_ >= 0) reclaim_all();
  return table_->total[card];
}

bool Usage::has_slot() {
  if (getpid() == process_) return true;
  if (held_ != 0 || (file_ >= 0 && !take_slot())) return false;
  if (file_ >= 0) reclaim(slot_);
  process_ = getpid();
  return true;
}

bool Usage::take_slot() {
  for (slot_ = 0; slot_ < kSlots; ++slot_) {
    if (set_lock(slot_, F_WRLCK)) return true;
  }
  return false;
}

bool Usage::set_lock(int slot, short type) {
  struct flock lock{};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = slot;
  lock.l_len = 1;
  return fcntl(file_, F_SETLK, &lock) == 0;
}

void Usage::reclaim(int slot) {
  for (int card = 0; card < kCards; ++card) {
    table_->total[card] -= table_->of_slot[slot][card].exchange(0);
  }
}

// A slot that can be locked belongs to no running process.
void Usage::reclaim_all() {
  for (int slot = 0; slot < kSlots; ++slot) {
    auto const& bytes = table_->of_slot[slot];
    bool const empty = std::ranges::none_of(bytes, [](auto const& used) { return used != 0; });
    if (empty || slot == slot_ || !set_lock(slot, F_WRLCK)) continue;
    reclaim(slot);
    set_lock(slot, F_UNLCK);
  }
}

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

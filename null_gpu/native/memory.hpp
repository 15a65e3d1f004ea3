// native/memory.hpp: the memory of a device: addresses without memory, and counted bytes. CUDA's
// virtual memory.
// SPDX-License-Identifier: Apache-2.0
//
// The addresses are reserved in the process without access rights, so any access by the host is a
// segmentation fault. Segments take pages of the card as in gpu/pages.hpp. All processes of a
// program share the card, and each also counts the bytes of its context from its first request on.
//
// An allocation takes the hole with the highest address that is large enough or, with `ascending`,
// the lowest one. cudaMalloc mostly returns decreasing addresses on Linux and increasing addresses
// on Windows, and PyTorch breaks ties between free blocks of equal size by address.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>

#include "gpu/pages.hpp"
#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu {

// The bytes of each card that the processes of a program use. The counters are in a file that all
// processes map. Each process owns a slot in it by a file lock, which the operating system releases
// when the process ends for any reason. When a card is full, the bytes of processes that have ended
// are reclaimed.
class Usage {
 public:
  // Creates the file if it does not exist. Counts only this process if the path is empty or the
  // file cannot be used.
  explicit Usage(std::string const& path) : process_(getpid()) {
    void* table = MAP_FAILED;
    if (!path.empty()) file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file_ >= 0 && ftruncate(file_, sizeof(Table)) == 0)
      table = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
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

  // Takes `size` bytes of a card; false if fewer are left of its capacity.
  bool take(int card, Size size, Size capacity) {
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

  void give(int card, Size size) {
    if (!has_slot()) return;
    held_ -= size;
    table_->of_slot[slot_][card] -= size;
    table_->total[card] -= size;
  }
  // bytes, by all processes
  Size used(int card) {
    if (file_ >= 0) reclaim_all();
    return table_->total[card];
  }

 private:
  static constexpr int kCards = 16;
  static constexpr int kSlots = 1024;
  struct Table {
    std::atomic<Size> total[kCards];
    std::atomic<Size> of_slot[kSlots][kCards];
  };
  static_assert(std::atomic<Size>::is_always_lock_free);

  // True if this process has a slot. A forked child takes a new one, but only if its parent held no
  // memory at the fork; otherwise the child cannot use the card, as with CUDA.
  bool has_slot() {
    if (getpid() == process_) return true;
    if (held_ != 0 || (file_ >= 0 && !take_slot())) return false;
    if (file_ >= 0) reclaim(slot_);
    process_ = getpid();
    return true;
  }

  bool take_slot() {
    for (slot_ = 0; slot_ < kSlots; ++slot_)
      if (set_lock(slot_, F_WRLCK)) return true;
    return false;
  }
  // Locks or unlocks a slot (F_WRLCK, F_UNLCK); false if another process holds it.
  bool set_lock(int slot, short type) {
    struct flock lock{};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    lock.l_start = slot;
    lock.l_len = 1;
    return fcntl(file_, F_SETLK, &lock) == 0;
  }

  void reclaim(int slot) {
    for (int card = 0; card < kCards; ++card)
      table_->total[card] -= table_->of_slot[slot][card].exchange(0);
  }
  // A slot that can be locked belongs to no running process.
  void reclaim_all() {
    for (int slot = 0; slot < kSlots; ++slot) {
      auto const& bytes = table_->of_slot[slot];
      bool const empty = std::ranges::none_of(bytes, [](auto const& used) { return used != 0; });
      if (empty || slot == slot_ || !set_lock(slot, F_WRLCK)) continue;
      reclaim(slot);
      set_lock(slot, F_UNLCK);
    }
  }

  Table* table_;
  int file_ = -1;
  int slot_ = 0;
  int process_;
  std::atomic<Size> held_ = 0;  // bytes of this process on all cards
};

#ifdef __SANITIZE_THREAD__  // its shadow memory leaves a program these addresses
inline constexpr Address kFirstAddress = 0x7e8000000000;
inline constexpr Address kAddressesPerDevice = Address{1} << 36;
#else
inline constexpr Address kFirstAddress = 0x300000000000;
inline constexpr Address kAddressesPerDevice = Address{1} << 42;
#endif
inline constexpr int kMostDevices = 16;

using allocbench::kPage;
using allocbench::Range;

class DeviceMemory {
 public:
  struct Counters {
    Size capacity, used, peak;  // bytes; used by this process, with its context
    std::uint64_t requests, refused;
  };

  // `card` is the number of the card in `usage`; `context` is in bytes.
  DeviceMemory(int device, int card, Size capacity, Size context, bool ascending, Usage& usage)
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

  // Memory with an address. kOutOfMemory if the card or the addresses do not suffice.
  Status allocate(Size size, Address* address) {
    std::lock_guard const lock(mutex_);
    ++requests_;
    Address const segment = pages_.allocate(size, [&](Size pages) { return take_pages(pages); });
    if (segment == 0) return kOutOfMemory;
    *address = segment;
    return kSuccess;
  }

  Status release(Address address) {
    std::lock_guard const lock(mutex_);
    bool const held = pages_.release(address, [&](Range pages) { give_pages(pages); });
    return held ? kSuccess : kInvalidValue;
  }
  // Releases all allocations; returns their number.
  std::size_t release_all() {
    std::lock_guard const lock(mutex_);
    auto const& segments = pages_.segments();
    std::size_t const number = segments.size();
    while (!segments.empty())
      pages_.release(segments.begin()->first, [&](Range pages) { give_pages(pages); });
    return number;
  }

  // Virtual memory: addresses without memory, then memory without addresses.
  Status reserve(Size size, Address* address) {
    std::lock_guard const lock(mutex_);
    Size const rounded = round_up(size, kPage);
    Address const begin = take_addresses(rounded);
    if (begin == 0) return kOutOfMemory;
    reserved_[begin] = rounded;
    *address = begin;
    return kSuccess;
  }

  Status unreserve(Address address) {
    std::lock_guard const lock(mutex_);
    auto const entry = reserved_.find(address);
    if (entry == reserved_.end()) return kInvalidValue;
    addresses_.join(address, address + entry->second);
    reserved_.erase(entry);
    return kSuccess;
  }

  Status take(Size size) {
    std::lock_guard const lock(mutex_);
    ++requests_;
    if (!count(size)) return kOutOfMemory;
    taken_ += size;
    return kSuccess;
  }

  void give(Size size) {
    std::lock_guard const lock(mutex_);
    taken_ -= size;
    uncount(size);
  }

  // The requested bytes of the allocation, or the reservation, that contains an address; size 0 if
  // none does.
  Range range_of(Address address) {
    std::lock_guard const lock(mutex_);
    if (Range const segment = pages_.around(address); segment.size != 0) return segment;
    auto const reserved = around(reserved_, address);
    return reserved == reserved_.end() ? Range{} : Range{reserved->first, reserved->second};
  }
  // bytes of the card that no process uses
  Size free() {
    std::lock_guard const lock(mutex_);
    open_context();
    return capacity_ - std::min(capacity_, usage_.used(card_));
  }
  Counters counters() const {
    std::lock_guard const lock(mutex_);
    return {capacity_, used_, peak_, requests_, refused_};
  }
  struct Allocations {
    std::size_t number;
    Size requested;  // bytes, by allocations and by those who took memory without an address
  };
  Allocations allocations() const {
    std::lock_guard const lock(mutex_);
    Allocations found{pages_.segments().size(), taken_};
    for (auto const& [begin, requested] : pages_.segments()) found.requested += requested;
    return found;
  }
  // Changes the bytes of the card.
  void resize(Size capacity) {
    std::lock_guard const lock(mutex_);
    capacity_ = capacity;
  }

 private:
  // Memory with an address; 0 if the card or the addresses do not suffice.
  Address take_pages(Size size) {
    if (!count(size)) return 0;
    Address const address = take_addresses(size);
    if (address == 0) uncount(size);
    return address;
  }
  void give_pages(Range range) {
    uncount(range.size);
    addresses_.join(range.begin, range.begin + range.size);
  }
  Address take_addresses(Size size) {
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

  bool count(Size size) {
    if (!open_context() || !usage_.take(card_, size, capacity_)) {
      ++refused_;
      return false;
    }
    used_ += size;
    peak_ = std::max(peak_, used_);
    return true;
  }

  void uncount(Size size) {
    used_ -= size;
    usage_.give(card_, size);
  }
  // Counts the context of this process once; false if the card has no room for it.
  bool open_context() {
    if (open_ || !usage_.take(card_, context_, capacity_)) return open_;
    used_ += context_;
    peak_ = std::max(peak_, used_);
    return open_ = true;
  }

  mutable std::mutex mutex_;
  Usage& usage_;
  int card_;
  bool open_ = false;
  Size capacity_, context_;
  bool ascending_;
  Size used_ = 0, peak_ = 0;  // by this process
  std::uint64_t requests_ = 0, refused_ = 0;
  Size taken_ = 0;    // without an address
  Ranges addresses_;  // that are free
  std::map<Address, Size> reserved_;
  Pages pages_;
};

// The rules of CUDA's virtual memory: reservations, pieces, mappings. A use that the driver's
// documentation forbids is kInvalidValue, and changes nothing. The caller finds the addresses and
// counts the bytes.
class VirtualMemory {
 public:
  using Piece = unsigned long long;  // CUmemGenericAllocationHandle
  // Called with the device and the bytes of a piece that no handle and no mapping refers to.
  using Freed = std::function<void(int device, Size size)>;

  explicit VirtualMemory(Freed freed) : freed_(std::move(freed)) {}

  // An address range was reserved.
  void reserved(Address begin, Size size) {
    std::lock_guard const lock(mutex_);
    reservations_[begin] = size;
  }
  // The range must be a whole reservation in which nothing is mapped.
  Status unreserve(Address begin, Size size) {
    std::lock_guard const lock(mutex_);
    auto const entry = reservations_.find(begin);
    if (entry == reservations_.end() || entry->second != size) return kInvalidValue;
    auto const mapping = mappings_.lower_bound(begin);
    if (mapping != mappings_.end() && mapping->first < begin + size) return kInvalidValue;
    reservations_.erase(entry);
    return kSuccess;
  }

  // Memory of a device was taken for a piece.
  Piece created(Size size, int device) {
    std::lock_guard const lock(mutex_);
    pieces_.emplace(++last_, Memory{size, device});
    return last_;
  }
  // One more handle of the piece that is mapped at an address.
  Status retain(Address address, Piece* piece) {
    std::lock_guard const lock(mutex_);
    auto const mapping = around(mappings_, address);
    if (mapping == mappings_.end()) return kInvalidValue;
    *piece = mapping->second.piece;
    ++pieces_.at(*piece).handles;
    return kSuccess;
  }

  Status release(Piece piece) {
    std::lock_guard const lock(mutex_);
    auto const entry = pieces_.find(piece);
    if (entry == pieces_.end() || entry->second.handles == 0) return kInvalidValue;
    --entry->second.handles;
    free_unused(piece);
    return kSuccess;
  }

  // The range must lie in one reservation, be as large as the piece, and have nothing mapped in it.
  Status map(Address begin, Size size, Piece piece) {
    std::lock_guard const lock(mutex_);
    auto const entry = pieces_.find(piece);
    if (entry == pieces_.end() || entry->second.handles == 0 || begin % kPage != 0)
      return kInvalidValue;
    if (entry->second.size != size) return kNotSupported;  // a part of a piece, or more than it
    auto const reserved = around(reservations_, begin);
    if (reserved == reservations_.end()) return kInvalidValue;
    auto const next = mappings_.lower_bound(begin);
    bool const overlaps = (next != mappings_.end() && next->first < begin + size) ||
                          (next != mappings_.begin() &&
                           std::prev(next)->first + std::prev(next)->second.size > begin);
    if (begin + size > reserved->first + reserved->second || overlaps) return kInvalidValue;
    ++entry->second.mappings;
    mappings_.emplace(begin, Mapping{size, piece});
    return kSuccess;
  }

  // The range must consist of whole mappings that follow one another, as in the next two.
  Status unmap(Address begin, Size size) {
    std::lock_guard const lock(mutex_);
    if (!whole_mappings(begin, size)) return kInvalidValue;
    for (auto mapping = mappings_.find(begin);
         mapping != mappings_.end() && mapping->first < begin + size;) {
      Piece const piece = mapping->second.piece;
      mapping = mappings_.erase(mapping);
      --pieces_.at(piece).mappings;
      free_unused(piece);
    }
    return kSuccess;
  }

  Status allow(Address begin, Size size, int device) {
    std::lock_guard const lock(mutex_);
    if (!whole_mappings(begin, size)) return kInvalidValue;
    for (auto mapping = mappings_.find(begin);
         mapping != mappings_.end() && mapping->first < begin + size; ++mapping) {
      mapping->second.devices.insert(device);
    }
    return kSuccess;
  }

  bool allowed(Address address, int device) const {
    std::lock_guard const lock(mutex_);
    auto const mapping = around(mappings_, address);
    return mapping != mappings_.end() && mapping->second.devices.contains(device);
  }
  // The mapping around an address, if a device may access it; its size is 0 otherwise.
  Range accessible(Address address) const {
    std::lock_guard const lock(mutex_);
    auto const mapping = around(mappings_, address);
    if (mapping == mappings_.end() || mapping->second.devices.empty()) return {};
    return {mapping->first, mapping->second.size};
  }
  // Whether a reservation begins at an address.
  bool reserved_at(Address begin) const {
    std::lock_guard const lock(mutex_);
    return reservations_.contains(begin);
  }
  // Whether all of a range is mapped.
  bool mapped(Address begin, Size size) const {
    std::lock_guard const lock(mutex_);
    auto mapping = around(mappings_, begin);
    if (mapping == mappings_.end()) return false;
    Address end = mapping->first;
    for (; mapping != mappings_.end() && mapping->first == end && end < begin + size; ++mapping)
      end += mapping->second.size;
    return end >= begin + size;
  }

  struct Counts {
    std::size_t reservations, pieces, mappings;
  };
  Counts counts() const {
    std::lock_guard const lock(mutex_);
    return {reservations_.size(), pieces_.size(), mappings_.size()};
  }

 private:
  struct Memory {
    Size size;
    int device;
    int handles = 1, mappings = 0;
  };
  struct Mapping {
    Size size;
    Piece piece;
    std::set<int> devices = {};  // that may access it
  };

  bool whole_mappings(Address begin, Size size) const {
    Address end = begin;
    for (auto mapping = mappings_.find(begin);
         mapping != mappings_.end() && mapping->first == end && end < begin + size; ++mapping) {
      end += mapping->second.size;
    }
    return size != 0 && end == begin + size;
  }

  void free_unused(Piece piece) {
    auto const entry = pieces_.find(piece);
    if (entry->second.handles != 0 || entry->second.mappings != 0) return;
    Memory const memory = entry->second;
    pieces_.erase(entry);
    freed_(memory.device, memory.size);
  }

  Freed freed_;
  mutable std::mutex mutex_;
  Piece last_ = 0;
  std::map<Address, Size> reservations_;
  std::unordered_map<Piece, Memory> pieces_;
  std::map<Address, Mapping> mappings_;
};

VirtualMemory& virtual_memory();  // of this process

// The file name of the library that has code at an address, or "". dladdr() can take milliseconds,
// so its answers are kept.
std::string const& library_at(void const* code);
// The caller's library has allocated memory of a device. It counts as held outside of PyTorch
// unless PyTorch's allocator asked for it, also through an allocator of the program.
void allocated_outside(int device, Address address, Size size);
void released_outside(Address address);  // if it counted

}  // namespace allocbench::null_gpu

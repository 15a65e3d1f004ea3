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

#include <atomic>
#include <functional>
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
  explicit Usage(std::string const& path);

  // Takes `size` bytes of a card; false if fewer are left of its capacity.
  bool take(int card, Size size, Size capacity);
  void give(int card, Size size);
  Size used(int card);  // bytes, by all processes

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
  bool has_slot();
  bool take_slot();
  // Locks or unlocks a slot (F_WRLCK, F_UNLCK); false if another process holds it.
  bool set_lock(int slot, short type);
  void reclaim(int slot);
  void reclaim_all();

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
  DeviceMemory(int device, int card, Size capacity, Size context, bool ascending, Usage& usage);

  // Memory with an address. kOutOfMemory if the card or the addresses do not suffice.
  Status allocate(Size size, Address* address);
  Status release(Address address);
  // Releases all allocations; returns their number.
  std::size_t release_all();

  // Virtual memory: addresses without memory, then memory without addresses.
  Status reserve(Size size, Address* address);
  Status unreserve(Address address);
  Status take(Size size);
  void give(Size size);

  // The requested bytes of the allocation, or the reservation, that contains an address; size 0 if
  // none does.
  Range range_of(Address address);
  Size free();  // bytes of the card that no process uses
  Counters counters() const;
  struct Allocations {
    std::size_t number;
    Size requested;  // bytes, by allocations and by those who took memory without an address
  };
  Allocations allocations() const;
  // Changes the bytes of the card.
  void resize(Size capacity);

 private:
  Address take_pages(Size size);
  void give_pages(Range range);
  Address take_addresses(Size size);
  bool count(Size size);
  void uncount(Size size);
  bool open_context();

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
  void reserved(Address begin, Size size);
  // The range must be a whole reservation in which nothing is mapped.
  Status unreserve(Address begin, Size size);

  // Memory of a device was taken for a piece.
  Piece created(Size size, int device);
  // One more handle of the piece that is mapped at an address.
  Status retain(Address address, Piece* piece);
  Status release(Piece piece);

  // The range must lie in one reservation, be as large as the piece, and have nothing mapped in it.
  Status map(Address begin, Size size, Piece piece);
  // The range must consist of whole mappings that follow one another, as in the next two.
  Status unmap(Address begin, Size size);
  Status allow(Address begin, Size size, int device);
  bool allowed(Address address, int device) const;
  // The mapping around an address, if a device may access it; its size is 0 otherwise.
  Range accessible(Address address) const;
  // Whether a reservation begins at an address.
  bool reserved_at(Address begin) const;
  // Whether all of a range is mapped.
  bool mapped(Address begin, Size size) const;

  struct Counts {
    std::size_t reservations, pieces, mappings;
  };
  Counts counts() const;

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

  bool whole_mappings(Address begin, Size size) const;
  void free_unused(Piece piece);

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

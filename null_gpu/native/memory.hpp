// null_gpu/memory.hpp: the memory of one device: addresses without memory, and counted bytes.
// SPDX-License-Identifier: Apache-2.0
//
// The addresses are reserved in the process without access rights, so any access by the host is a
// segmentation fault. Requests count as whole pages of 2 MiB, and those of up to 1 MiB share pages,
// at multiples of 512 bytes, as measured on an H100. All processes of a program share the card, and
// each also counts the bytes of its context from its first request on.
//
// An allocation takes the hole with the highest address that is large enough or, with `ascending`,
// the lowest one. cudaMalloc mostly returns decreasing addresses on Linux and increasing addresses
// on Windows, and PyTorch breaks ties between free blocks of equal size by address.
#pragma once

#include <map>
#include <mutex>
#include <unordered_map>

#include "null_gpu/native/api.hpp"
#include "null_gpu/native/pool_space.hpp"
#include "null_gpu/native/usage.hpp"
#include "null_gpu/native/virtual_memory.hpp"

namespace allocbench::null_gpu {

#ifdef __SANITIZE_THREAD__  // its shadow memory leaves a program these addresses
inline constexpr Address kFirstAddress = 0x7e8000000000;
inline constexpr Address kAddressesPerDevice = Address{1} << 36;
#else
inline constexpr Address kFirstAddress = 0x300000000000;
inline constexpr Address kAddressesPerDevice = Address{1} << 42;
#endif
inline constexpr int kMostDevices = 16;

struct Range {
  Address begin = 0;
  Size size = 0;
};

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
  struct Allocation {
    Size size, requested;
  };

  struct SharedPage {
    std::map<Address, Address> holes;  // ends by begin
    std::size_t live = 0;
  };

  Status allocate_shared(Size size, Address* address);
  void release_shared(Address begin, Size size);
  bool take_hole(Size size, Address* address);
  void give_hole(Range range);
  Status count(Size size);
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
  Size taken_ = 0;  // without an address
  std::map<Address, Size> holes_, reserved_;
  std::map<Address, Allocation> live_;
  std::map<Address, SharedPage> shared_;
};

}  // namespace allocbench::null_gpu

// null_gpu/memory.hpp: the memory of one device: addresses without pages, bytes that are counted.
// SPDX-License-Identifier: Apache-2.0
//
// Addresses are reserved from the process and faulted by any access of the host. What counts
// against the card is whole pages of 2 MiB, which the driver gives for requests as large as
// PyTorch's; smaller requests share pages there, and do not here. The card is shared by all
// processes of a program; each takes the bytes of its context at its first request.
//
// An allocation takes the highest hole that is large enough, or the lowest with `ascending`:
// cudaMalloc mostly goes down on Linux and up on Windows, and PyTorch breaks ties between free
// blocks of equal size by address.
#pragma once

#include <map>
#include <mutex>
#include <unordered_map>

#include "null_gpu/api.hpp"
#include "null_gpu/usage.hpp"

namespace allocbench::null_gpu {

inline constexpr Address kFirstAddress = 0x300000000000;
inline constexpr Address kAddressesPerDevice = Address{1} << 42;
inline constexpr int kMostDevices = 16;
inline constexpr Size kPage = Size{2} << 20;

inline Size round_up(Size size, Size unit) { return (size + unit - 1) / unit * unit; }

struct Range {
  Address begin = 0;
  Size size = 0;
};

class DeviceMemory {
 public:
  struct Seen {
    Size capacity, used, peak;
    std::uint64_t requests, refused;
  };

  // card: the number of the card in `usage`.
  DeviceMemory(int device, int card, Size capacity, Size context, bool ascending, Usage& usage);

  // An address range with memory behind it; kOutOfMemory beyond the card.
  Status allocate(Size size, Address* address);
  Status release(Address address);

  // Virtual memory: addresses alone, and memory alone.
  Status reserve(Size size, Address* address);
  Status unreserve(Address address);
  Status take(Size size);
  void give(Size size);

  // The allocation or the reservation that an address lies in; a size of 0 when in none.
  Range range_of(Address address);
  Size free();
  Seen seen() const;

 private:
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
  std::map<Address, Size> holes_, live_, reserved_;
};

}  // namespace allocbench::null_gpu

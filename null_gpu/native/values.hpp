// native/values.hpp: the known contents of device memory.
// SPDX-License-Identifier: Apache-2.0
//
// A value that the host wrote is known until the next kernel, which could have changed any value.
// Unknown values read as zero, and each such read is counted. A copy from the host is kept only up
// to kMostKept bytes; a range that was set to one value is kept at any size.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu {

inline constexpr Size kMostKept = Size{64} << 10;

class Values {
 public:
  using OnRead = std::uint64_t (*)(std::uint64_t bytes);

  static Values& get();

  // cudaMemcpy between host and device memory in any combination. Copies within the host are real.
  void copy(void* to, void const* from, Size size);
  void fill(void* to, int value, Size size);
  // Makes all values unknown, because a kernel ran.
  void forget_all();
  // Sets a function to call after each read of an unknown value, on the reading thread. A single
  // number (1, 2, 4 or 8 bytes) then reads as the bits that it returns.
  void on_read(OnRead call) { on_read_ = call; }
  std::uint64_t unknown_reads() const { return unknown_reads_; }

 private:
  struct Known {
    Size size;
    std::string bytes;  // empty: all `size` bytes are `fill`
    char fill = 0;
  };
  template <typename Visit>
  void each_known(Address from, Size size, Visit visit) const;

  void forget(Address begin, Size size);
  void write(Address to, Known known);
  bool read(Address from, char* to, Size size) const;
  void copy_known(Address to, Address from, Size size);

  std::mutex mutex_;
  std::map<Address, Known> known_;
  std::atomic<bool> any_ = false;
  std::atomic<std::uint64_t> unknown_reads_ = 0;
  std::atomic<OnRead> on_read_ = nullptr;
};

}  // namespace allocbench::null_gpu

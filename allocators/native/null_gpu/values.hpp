// null_gpu/values.hpp: what is known of the contents of device memory.
// SPDX-License-Identifier: Apache-2.0
//
// Known is what the host wrote, until the next kernel: it could have changed anything. All else
// reads as zero, and each such read is counted. Written values are kept up to kMostKept bytes a
// copy; bytes that were set to one value are known at any size.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "null_gpu/api.hpp"

namespace allocbench::null_gpu {

inline constexpr Size kMostKept = Size{64} << 10;

class Values {
 public:
  using OnRead = void (*)(std::uint64_t bytes);

  static Values& get();

  // cudaMemcpy between any two places; the host's own memory is copied as it is.
  void copy(void* to, void const* from, Size size);
  void fill(void* to, int value, Size size);
  // A kernel ran: nothing is known any more.
  void forget_all();
  // Called after each read of a value that is not known, on the thread that reads.
  void on_read(OnRead call) { on_read_ = call; }
  std::uint64_t unknown_reads() const { return unknown_reads_; }

 private:
  struct Known {
    Size size;
    std::string bytes;  // empty: all of them are `fill`
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

// native/values.hpp: the known contents of device memory.
// SPDX-License-Identifier: Apache-2.0
//
// A value that the host wrote is known until the next kernel, which could have changed any value.
// What the operators of PyTorch write is known for longer: the hook computes it on the host, and
// `operators.cpp` sees which of them change it. Unknown values read as zero, and each such read is
// counted. A copy from the host is kept only up to kMostKept bytes until the hook follows it; a
// range that was set to one value is kept at any size.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "null_gpu/native/api.hpp"
#include "null_gpu/native/known_bytes.hpp"

namespace allocbench::null_gpu {

inline constexpr Size kMostKept = Size{64} << 10;
inline constexpr Size kMostFollowed = Size{512} << 20;

class Values {
 public:
  using OnRead = void (*)(void* to, std::uint64_t bytes);

  static Values& get();

  // cudaMemcpy between host and device memory in any combination. Copies within the host are real.
  void copy(void* to, void const* from, Size size);
  void fill(void* to, int value, Size size);
  // Gives a rank its own data in the place of what another rank sends. Until the next kernel,
  // PyTorch can compare it with what it has sent.
  void receive(void* to, void const* from, Size size);
  // Makes what the host wrote unknown, because a kernel ran.
  void forget_all();
  // Sets a function to call after each read of unknown values, on the reading thread. It may write
  // other values than the zeros that are there.
  void on_read(OnRead call) { on_read_ = call; }
  std::uint64_t unknown_reads() const { return unknown_reads_; }

  // What is followed stays known until it is forgotten or written.
  void follow(Address to, char const* bytes, Size size);
  void follow_fill(Address to, Size size);
  bool follows(Address begin, Size size) const;
  void forget_followed(Address begin, Size size);
  // Forgets what was followed or written by the host.
  void forget(Address begin, Size size);
  // Forgets what was written before the number of writes had this value.
  void forget_followed_before(Address begin, Size size, std::uint64_t write);
  // Forgets the memory at an address, of which the size is not known.
  void forget_followed_at(Address address);
  void forget_everything();
  // Copies the bytes of a range that were written after this number of writes; false: some are not
  // known, and these are zero.
  bool read(Address from, char* to, Size size, std::uint64_t after = 0) const;

 private:
  mutable std::mutex mutex_;
  KnownBytes recent_, followed_;
  std::atomic<bool> any_recent_ = false;
  // All that is followed lies between these addresses.
  std::atomic<Address> first_followed_ = ~Address{0}, last_followed_ = 0;

  bool may_follow(Address begin, Size size) const {
    return begin < last_followed_ && begin + size > first_followed_;
  }
  void extend(Address begin, Size size);
  std::atomic<std::uint64_t> unknown_reads_ = 0;
  std::atomic<OnRead> on_read_ = nullptr;
};

}  // namespace allocbench::null_gpu

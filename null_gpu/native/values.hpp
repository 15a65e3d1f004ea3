// native/values.hpp: the known contents of device memory.
// SPDX-License-Identifier: Apache-2.0
//
// A value that the host wrote is known until the next kernel, which could have changed any value.
// What the operators of PyTorch write is known for longer: the hook computes it on the host, and
// `operators.cpp` sees which of them change it. Unknown values read as zero, and the hook
// counts such reads. A copy from the host is kept only up to kMostKept bytes until the hook follows
// it; a range that was set to one value is kept at any size.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "null_gpu/native/api.hpp"

namespace allocbench::null_gpu {

// A range that is set to one value takes no memory for its bytes.
class KnownBytes {
 public:
  void clear();
  void forget(Address begin, Size size);
  void write(Address to, char const* bytes, Size size);
  void fill(Address to, char value, Size size);
  // Whether any byte of the range is known.
  bool overlaps(Address begin, Size size) const;
  // Forgets what was written to the range before `last_write` had this value.
  void forget_before(Address begin, Size size, std::uint64_t write);
  // Forgets the range that has this address, and those that follow it without a gap.
  void forget_run(Address address);
  // The number of writes so far.
  static std::uint64_t last_write();
  // Copies the known bytes of the range to `to`, of those that were written after this number of
  // writes; returns how many there were.
  Size read(Address from, char* to, Size size, std::uint64_t after = 0) const;
  // Writes these parts of a range elsewhere, and forgets the others there.
  void copy(Address to, Address from, Size size, std::uint64_t after = 0);
  // Forgets the ranges that were written first, until the others take at most so much memory.
  void limit(Size most);

 private:
  struct Range {
    Size size;
    std::string bytes;  // empty: all `size` bytes are `fill`
    char fill;
    std::uint64_t written;
  };
  using Ranges = std::map<Address, Range>;

  static Range part(Range const& range, Address offset, Size size);
  Ranges::const_iterator first_at(Address begin) const;
  void put(Address to, Range range);
  void erase(Ranges::const_iterator entry);

  Ranges ranges_;
  std::set<std::pair<std::uint64_t, Address>> order_;  // of the ranges that have bytes
  Size stored_ = 0;
};

inline constexpr Size kMostKept = Size{64} << 10;
inline constexpr Size kMostFollowed = Size{512} << 20;

class Values : public Only<Values> {
 public:
  using OnRead = void (*)(void* to, std::uint64_t bytes);

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
  std::atomic<OnRead> on_read_ = nullptr;
};

// Records work on a stream that may have written to any device memory. PyTorch's operators say
// which tensors they change. Kernels of other libraries do not.
void launched(Handle stream);
// A program asks for the device's address of memory, as Triton does for each argument of a kernel.
void pointer_given(Address address);

// PyTorch tells an observer of each operator that its dispatcher calls, as it tells its profiler:
// the operator's schema and arguments before the call, and its results afterwards. So the null GPU
// knows which memory an operator writes, and the hook can compute small results on the host.
// Programs see nothing of it. The observer (`operators.cpp`) needs no header of PyTorch: the hook
// finds out where the parts of PyTorch's objects are (`inside/dispatcher.py`).

// A kernel was launched, on this thread. It may have written to what the operator that launches it
// allocated, or to its arguments that it changes.
void kernel_in_operator();
// Whether this thread runs an operator, whose schema says what it writes.
bool in_operator();
// An operator that reads memory other than that of its arguments reads what it allocated itself.
// Returns a number of writes: memory at this address is known only if it was written later.
std::uint64_t known_after(Address address);

}  // namespace allocbench::null_gpu

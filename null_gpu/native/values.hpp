// native/values.hpp: the known contents of device memory.
// SPDX-License-Identifier: Apache-2.0
//
// A value that the host wrote is known until the next kernel, which could have changed any value.
// What the operators of PyTorch write is known for longer: the hook computes it on the host, and
// `operators.cpp` sees which of them change it. Unknown values read as zero, and the hook
// counts such reads. A copy from the host is kept only up to kMostKept bytes until the hook follows
// it; a range that was set to one value is kept at any size.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "null_gpu/native/api.hpp"
#include "null_gpu/native/machine.hpp"

namespace allocbench::null_gpu {

// A range that is set to one value takes no memory for its bytes.
class KnownBytes {
 public:
  void clear() {
    ranges_.clear();
    order_.clear();
    stored_ = 0;
  }
  // Forgets what was written to the range before the number of writes was larger than `before`.
  void forget(Address begin, Size size, std::uint64_t before = ~std::uint64_t{0}) {
    Address const end = begin + size;
    std::vector<std::pair<Address, Range>> rest;
    for (auto next = first_at(begin); next != ranges_.end() && next->first < end;) {
      auto const found = next++;
      if (found->second.written > before) continue;
      Address const first = found->first, last = first + found->second.size;
      if (first < begin) rest.emplace_back(first, part(found->second, 0, begin - first));
      if (last > end) rest.emplace_back(end, part(found->second, end - first, last - end));
      erase(found);
    }
    for (auto& [address, range] : rest) put(address, std::move(range));
  }

  void write(Address to, char const* bytes, Size size) {
    if (is_uniform(bytes, size)) {
      fill(to, *bytes, size);
      return;
    }
    forget(to, size);
    put(to, {size, std::string(bytes, size), 0, ++writes_});
  }

  void fill(Address to, char value, Size size) {
    forget(to, size);
    put(to, {size, {}, value, ++writes_});
  }
  // Whether any byte of the range is known.
  bool overlaps(Address begin, Size size) const {
    auto const entry = first_at(begin);
    return entry != ranges_.end() && entry->first < begin + size;
  }
  // Forgets the range that has this address, and those that follow it without a gap.
  void forget_run(Address address) {
    auto entry = first_at(address);
    while (entry != ranges_.end() && entry->first <= address) {
      address = entry->first + entry->second.size;
      erase(entry);
      entry = first_at(address);
    }
  }

  // The number of writes so far.
  static std::uint64_t last_write() { return writes_; }
  // Copies the known bytes of the range to `to`, of those that were written after this number of
  // writes; returns how many there were.
  Size read(Address from, char* to, Size size, std::uint64_t after = 0) const {
    Size known = 0;
    for (auto entry = first_at(from); entry != ranges_.end() && entry->first < from + size;
         ++entry) {
      auto const& [first, range] = *entry;
      if (range.written <= after) continue;
      Address const begin = std::max(first, from), end = std::min(first + range.size, from + size);
      if (range.bytes.empty())
        std::memset(to + (begin - from), range.fill, end - begin);
      else
        std::memcpy(to + (begin - from), range.bytes.data() + (begin - first), end - begin);
      known += end - begin;
    }
    return known;
  }

  // Writes these parts of a range elsewhere, and forgets the others there.
  void copy(Address to, Address from, Size size, std::uint64_t after = 0) {
    std::vector<std::pair<Address, Range>> parts;
    for (auto entry = first_at(from); entry != ranges_.end() && entry->first < from + size;
         ++entry) {
      auto const& [first, range] = *entry;
      if (range.written <= after) continue;
      Address const begin = std::max(first, from), end = std::min(first + range.size, from + size);
      parts.emplace_back(to + (begin - from), part(range, begin - first, end - begin));
    }
    forget(to, size);
    for (auto& [address, range] : parts) {
      range.written = ++writes_;
      put(address, std::move(range));
    }
  }

  // Forgets the ranges that were written first, until the others take at most so much memory.
  void limit(Size most) {
    while (stored_ > most && !order_.empty()) erase(ranges_.find(order_.begin()->second));
  }

 private:
  struct Range {
    Size size;
    std::string bytes;  // empty: all `size` bytes are `fill`
    char fill;
    std::uint64_t written;
  };
  using Ranges = std::map<Address, Range>;

  static bool is_uniform(char const* bytes, Size size) {
    return size > 1 && std::memcmp(bytes, bytes + 1, size - 1) == 0;
  }
  static Range part(Range const& range, Address offset, Size size) {
    std::string bytes = range.bytes.empty() ? "" : range.bytes.substr(offset, size);
    return {size, std::move(bytes), range.fill, range.written};
  }
  // The first range that ends after `begin`.
  Ranges::const_iterator first_at(Address begin) const {
    auto entry = ranges_.upper_bound(begin);
    if (entry != ranges_.begin()) {
      auto const before = std::prev(entry);
      if (before->first + before->second.size > begin) entry = before;
    }
    return entry;
  }

  void put(Address to, Range range) {
    stored_ += range.bytes.size();
    if (!range.bytes.empty()) order_.emplace(range.written, to);
    ranges_[to] = std::move(range);
  }
  void erase(Ranges::const_iterator entry) {
    stored_ -= entry->second.bytes.size();
    order_.erase({entry->second.written, entry->first});
    ranges_.erase(entry);
  }

  static inline std::atomic<std::uint64_t> writes_ = 0;
  Ranges ranges_;
  std::set<std::pair<std::uint64_t, Address>> order_;  // of the ranges that have bytes
  Size stored_ = 0;
};

inline constexpr Size kMostKept = Size{64} << 10;
inline constexpr Size kMostFollowed = Size{512} << 20;

// Records work on a stream that may have written to any device memory. PyTorch's operators say
// which tensors they change. Kernels of other libraries do not.
void launched(Handle stream);
// Notes the source of a program of NVRTC: its kernel may write only where its arguments point.
void compiled(Handle program, std::string_view source);
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

class Values : public Only<Values> {
 public:
  using OnRead = void (*)(void* to, std::uint64_t bytes);

  // cudaMemcpy between host and device memory in any combination. Copies within the host are real.
  void copy(void* to, void const* from, Size size) {
    if (size == 0) return;
    bool const to_device = on_device(to), from_device = on_device(from);
    if (!to_device && !from_device) {
      std::memmove(to, from, size);
      return;
    }
    bool known = true;
    std::uint64_t const after = from_device ? known_after(number(from)) : 0;
    if (!from_device) {
      std::lock_guard const lock(mutex_);
      wrote(to, size <= kMostKept ? static_cast<char const*>(from) : nullptr, size);
    } else if (to_device) {
      std::lock_guard const lock(mutex_);
      recent_.copy(number(to), number(from), size, after);
      followed_.copy(number(to), number(from), size, after);
      if (may_follow(number(from), size)) extend(number(to), size);
    } else {
      known = read(number(from), static_cast<char*>(to), size, after);
    }
    if (OnRead const call = on_read_; !known && call != nullptr) call(to, size);
  }

  void fill(void* to, int value, Size size) {
    if (size == 0) return;
    if (!on_device(to)) {
      std::memset(to, value, size);
      return;
    }
    std::lock_guard const lock(mutex_);
    followed_.forget(number(to), size);
    recent_.fill(number(to), static_cast<char>(value), size);
    any_recent_ = true;
  }

  // Gives a rank its own data in the place of what another rank sends. Until the next kernel,
  // PyTorch can compare it with what it has sent.
  void receive(void* to, void const* from, Size size) {
    if (!on_device(to) || !on_device(from)) {
      copy(to, from, size);
      return;
    }
    std::string bytes(std::min(size, kMostKept), '\0');
    bool const known = size <= kMostKept && read(number(from), bytes.data(), size);
    std::lock_guard const lock(mutex_);
    wrote(to, known ? bytes.data() : nullptr, size);
  }

  // Makes what the host wrote unknown, because a kernel ran.
  void forget_all() {
    if (!any_recent_) return;
    std::lock_guard const lock(mutex_);
    recent_.clear();
    any_recent_ = false;
  }
  // Sets a function to call after each read of unknown values, on the reading thread. It may write
  // other values than the zeros that are there.
  void on_read(OnRead call) { on_read_ = call; }

  // What is followed stays known until it is forgotten or written.
  void follow(Address to, char const* bytes, Size size) {
    std::lock_guard const lock(mutex_);
    recent_.forget(to, size);
    followed_.write(to, bytes, size);
    followed_.limit(kMostFollowed);
    extend(to, size);
  }

  void follow_fill(Address to, Size size) {
    std::lock_guard const lock(mutex_);
    recent_.forget(to, size);
    followed_.fill(to, 0, size);
    extend(to, size);
  }
  bool follows(Address begin, Size size) const {
    if (!may_follow(begin, size)) return false;
    std::lock_guard const lock(mutex_);
    return followed_.overlaps(begin, size);
  }
  // Forgets what was followed or written by the host.
  void forget(Address begin, Size size) {
    std::lock_guard const lock(mutex_);
    recent_.forget(begin, size);
    followed_.forget(begin, size);
  }
  // Forgets what was written before the number of writes had this value.
  void forget_followed(Address begin, Size size, std::uint64_t write = ~std::uint64_t{0}) {
    if (!may_follow(begin, size)) return;
    std::lock_guard const lock(mutex_);
    followed_.forget(begin, size, write);
  }
  // Forgets the memory at an address, of which the size is not known.
  void forget_followed_at(Address address) {
    std::lock_guard const lock(mutex_);
    followed_.forget_run(address);
  }
  void forget_everything() {
    forget_all();
    std::lock_guard const lock(mutex_);
    followed_.clear();
  }
  // Copies the bytes of a range that were written after this number of writes; false: some are not
  // known, and these are zero.
  bool read(Address from, char* to, Size size, std::uint64_t after = 0) const {
    std::lock_guard const lock(mutex_);
    std::memset(to, 0, size);
    return followed_.read(from, to, size, after) + recent_.read(from, to, size, after) == size;
  }

 private:
  static bool on_device(void const* address) { return Machine::get().device_of(address) >= 0; }
  static Address number(void const* address) { return reinterpret_cast<Address>(address); }
  // The host wrote bytes, which are not known if they are null.
  void wrote(void* to, char const* bytes, Size size) {
    recent_.forget(number(to), size);
    followed_.forget(number(to), size);
    if (bytes == nullptr) return;
    recent_.write(number(to), bytes, size);
    any_recent_ = true;
  }
  bool may_follow(Address begin, Size size) const {
    return begin < last_followed_ && begin + size > first_followed_;
  }
  void extend(Address begin, Size size) {
    first_followed_ = std::min(first_followed_.load(), begin);
    last_followed_ = std::max(last_followed_.load(), begin + size);
  }

  mutable std::mutex mutex_;
  KnownBytes recent_, followed_;
  std::atomic<bool> any_recent_ = false;
  // All that is followed lies between these addresses.
  std::atomic<Address> first_followed_ = ~Address{0}, last_followed_ = 0;
  std::atomic<OnRead> on_read_ = nullptr;
};

}  // namespace allocbench::null_gpu

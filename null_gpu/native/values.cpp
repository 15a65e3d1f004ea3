// native/values.cpp: the known contents of device memory.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/values.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/operators.hpp"

namespace allocbench::null_gpu {

namespace {

bool on_device(void const* address) { return Machine::get().device_of(address) >= 0; }
Address number(void const* address) { return reinterpret_cast<Address>(address); }

}  // namespace

Values& Values::get() {
  static Values* values = new Values;
  return *values;
}

void Values::copy(void* to, void const* from, Size size) {
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
    recent_.forget(number(to), size);
    followed_.forget(number(to), size);
    if (size <= kMostKept) {
      recent_.write(number(to), static_cast<char const*>(from), size);
      any_recent_ = true;
    }
  } else if (to_device) {
    std::lock_guard const lock(mutex_);
    recent_.copy(number(to), number(from), size, after);
    followed_.copy(number(to), number(from), size, after);
    if (may_follow(number(from), size)) extend(number(to), size);
  } else {
    known = read(number(from), static_cast<char*>(to), size, after);
  }
  if (!known) {
    ++unknown_reads_;
    if (OnRead const call = on_read_) call(to, size);
  }
}

void Values::fill(void* to, int value, Size size) {
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

void Values::receive(void* to, void const* from, Size size) {
  if (!on_device(to) || !on_device(from)) {
    copy(to, from, size);
    return;
  }
  std::string bytes(std::min(size, kMostKept), '\0');
  bool const known = size <= kMostKept && read(number(from), bytes.data(), size);
  std::lock_guard const lock(mutex_);
  recent_.forget(number(to), size);
  followed_.forget(number(to), size);
  if (!known) return;
  recent_.write(number(to), bytes.data(), size);
  any_recent_ = true;
}

void Values::forget_all() {
  if (!any_recent_) return;
  std::lock_guard const lock(mutex_);
  recent_.clear();
  any_recent_ = false;
}

void Values::follow(Address to, char const* bytes, Size size) {
  std::lock_guard const lock(mutex_);
  recent_.forget(to, size);
  followed_.write(to, bytes, size);
  followed_.limit(kMostFollowed);
  extend(to, size);
}

void Values::follow_fill(Address to, Size size) {
  std::lock_guard const lock(mutex_);
  recent_.forget(to, size);
  followed_.fill(to, 0, size);
  extend(to, size);
}

void Values::extend(Address begin, Size size) {
  first_followed_ = std::min(first_followed_.load(), begin);
  last_followed_ = std::max(last_followed_.load(), begin + size);
}

bool Values::follows(Address begin, Size size) const {
  if (!may_follow(begin, size)) return false;
  std::lock_guard const lock(mutex_);
  return followed_.overlaps(begin, size);
}

void Values::forget_followed(Address begin, Size size) {
  if (!may_follow(begin, size)) return;
  std::lock_guard const lock(mutex_);
  followed_.forget(begin, size);
}

void Values::forget(Address begin, Size size) {
  std::lock_guard const lock(mutex_);
  recent_.forget(begin, size);
  followed_.forget(begin, size);
}

void Values::forget_followed_before(Address begin, Size size, std::uint64_t write) {
  if (!may_follow(begin, size)) return;
  std::lock_guard const lock(mutex_);
  followed_.forget_before(begin, size, write);
}

void Values::forget_followed_at(Address address) {
  std::lock_guard const lock(mutex_);
  followed_.forget_run(address);
}

void Values::forget_everything() {
  forget_all();
  std::lock_guard const lock(mutex_);
  followed_.clear();
}

bool Values::read(Address from, char* to, Size size, std::uint64_t after) const {
  std::lock_guard const lock(mutex_);
  std::memset(to, 0, size);
  return followed_.read(from, to, size, after) + recent_.read(from, to, size, after) == size;
}

}  // namespace allocbench::null_gpu

using allocbench::null_gpu::Values;

// Sets the function to call after each read of unknown values.
NULL_GPU_API void null_on_read(Values::OnRead call) { Values::get().on_read(call); }

// Copies known values of the device: 1 if all of them are known.
NULL_GPU_API int null_known(std::uint64_t from, char* to, std::uint64_t size) {
  return Values::get().read(from, to, size);
}

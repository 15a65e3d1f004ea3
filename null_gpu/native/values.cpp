// native/values.cpp: the known contents of device memory.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/values.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "null_gpu/native/machine.hpp"

namespace allocbench::null_gpu {

namespace {

std::atomic<std::uint64_t> writes = 0;

bool is_uniform(char const* bytes, Size size) {
  return size > 1 && std::memcmp(bytes, bytes + 1, size - 1) == 0;
}

bool on_device(void const* address) { return Machine::get().device_of(address) >= 0; }
Address number(void const* address) { return reinterpret_cast<Address>(address); }

}  // namespace

void KnownBytes::clear() {
  ranges_.clear();
  order_.clear();
  stored_ = 0;
}

KnownBytes::Range KnownBytes::part(Range const& range, Address offset, Size size) {
  std::string bytes = range.bytes.empty() ? "" : range.bytes.substr(offset, size);
  return {size, std::move(bytes), range.fill, range.written};
}

// The first range that ends after `begin`.
KnownBytes::Ranges::const_iterator KnownBytes::first_at(Address begin) const {
  auto entry = ranges_.upper_bound(begin);
  if (entry != ranges_.begin()) {
    auto const before = std::prev(entry);
    if (before->first + before->second.size > begin) entry = before;
  }
  return entry;
}

void KnownBytes::put(Address to, Range range) {
  stored_ += range.bytes.size();
  if (!range.bytes.empty()) order_.emplace(range.written, to);
  ranges_[to] = std::move(range);
}

void KnownBytes::erase(Ranges::const_iterator entry) {
  stored_ -= entry->second.bytes.size();
  order_.erase({entry->second.written, entry->first});
  ranges_.erase(entry);
}

void KnownBytes::forget(Address begin, Size size) {
  Address const end = begin + size;
  std::vector<std::pair<Address, Range>> rest;
  for (auto found = first_at(begin); found != ranges_.end() && found->first < end;
       found = first_at(begin)) {
    Address const first = found->first, last = first + found->second.size;
    if (first < begin) rest.emplace_back(first, part(found->second, 0, begin - first));
    if (last > end) rest.emplace_back(end, part(found->second, end - first, last - end));
    erase(found);
  }
  for (auto& [address, range] : rest) put(address, std::move(range));
}

void KnownBytes::write(Address to, char const* bytes, Size size) {
  if (is_uniform(bytes, size)) {
    fill(to, *bytes, size);
    return;
  }
  forget(to, size);
  put(to, {size, std::string(bytes, size), 0, ++writes});
}

void KnownBytes::fill(Address to, char value, Size size) {
  forget(to, size);
  put(to, {size, {}, value, ++writes});
}

bool KnownBytes::overlaps(Address begin, Size size) const {
  auto const entry = first_at(begin);
  return entry != ranges_.end() && entry->first < begin + size;
}

void KnownBytes::forget_before(Address begin, Size size, std::uint64_t write) {
  std::vector<std::pair<Address, Size>> old;
  for (auto entry = first_at(begin); entry != ranges_.end() && entry->first < begin + size; ++entry)
    if (entry->second.written <= write) old.emplace_back(entry->first, entry->second.size);
  for (auto const& [address, length] : old) {
    Address const first = std::max(address, begin);
    forget(first, std::min(address + length, begin + size) - first);
  }
}

void KnownBytes::forget_run(Address address) {
  auto entry = first_at(address);
  while (entry != ranges_.end() && entry->first <= address) {
    address = entry->first + entry->second.size;
    erase(entry);
    entry = first_at(address);
  }
}

std::uint64_t KnownBytes::last_write() { return writes; }

Size KnownBytes::read(Address from, char* to, Size size, std::uint64_t after) const {
  Size known = 0;
  for (auto entry = first_at(from); entry != ranges_.end() && entry->first < from + size; ++entry) {
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

void KnownBytes::copy(Address to, Address from, Size size, std::uint64_t after) {
  std::vector<std::pair<Address, Range>> parts;
  for (auto entry = first_at(from); entry != ranges_.end() && entry->first < from + size; ++entry) {
    auto const& [first, range] = *entry;
    if (range.written <= after) continue;
    Address const begin = std::max(first, from), end = std::min(first + range.size, from + size);
    parts.emplace_back(to + (begin - from), part(range, begin - first, end - begin));
  }
  forget(to, size);
  for (auto& [address, range] : parts) {
    range.written = ++writes;
    put(address, std::move(range));
  }
}

void KnownBytes::limit(Size most) {
  while (stored_ > most && !order_.empty()) erase(ranges_.find(order_.begin()->second));
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
  if (OnRead const call = on_read_; !known && call != nullptr) call(to, size);
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
NULL_GPU_GIVES(known, (std::uint64_t from, char* to, std::uint64_t size),
               Values::get().read(from, to, size))

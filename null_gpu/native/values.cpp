// native/values.cpp: the known contents of device memory.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/values.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "null_gpu/native/machine.hpp"

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
  {
    std::lock_guard const lock(mutex_);
    if (!from_device) {
      forget(number(to), size);
      if (size <= kMostKept) {
        write(number(to), {size, std::string(static_cast<char const*>(from), size)});
      }
    } else if (to_device) {
      copy_known(number(to), number(from), size);
    } else {
      known = read(number(from), static_cast<char*>(to), size);
    }
  }
  if (!known) {
    ++unknown_reads_;
    if (OnRead const call = on_read_) {
      std::uint64_t const bits = call(size);
      if (bits != 0 && size <= sizeof bits && std::has_single_bit(size))
        std::memcpy(to, &bits, size);
    }
  }
}

void Values::fill(void* to, int value, Size size) {
  if (size == 0) return;
  if (!on_device(to)) {
    std::memset(to, value, size);
    return;
  }
  std::lock_guard const lock(mutex_);
  forget(number(to), size);
  write(number(to), {size, {}, static_cast<char>(value)});
}

void Values::forget_all() {
  if (!any_) return;
  std::lock_guard const lock(mutex_);
  known_.clear();
  any_ = false;
}

// Removes the range from the known contents.
void Values::forget(Address begin, Size size) {
  Address const end = begin + size;
  auto entry = known_.upper_bound(begin);
  if (entry != known_.begin()) --entry;
  std::vector<std::pair<Address, Known>> rest;
  while (entry != known_.end() && entry->first < end) {
    Address const first = entry->first, last = first + entry->second.size;
    if (last <= begin) {
      ++entry;
      continue;
    }
    Known const& known = entry->second;
    auto part = [&](Address from, Address to) {
      std::string bytes = known.bytes.empty() ? "" : known.bytes.substr(from - first, to - from);
      rest.emplace_back(from, Known{to - from, std::move(bytes), known.fill});
    };
    if (first < begin) part(first, begin);
    if (last > end) part(end, last);
    entry = known_.erase(entry);
  }
  for (auto& [address, known] : rest) known_[address] = std::move(known);
}

void Values::write(Address to, Known known) {
  known_[to] = std::move(known);
  any_ = true;
}

// Calls `visit(begin, end, first, known)` for each known part [begin, end) of the range; `first` is
// the address at which `known` begins.
template <typename Visit>
void Values::each_known(Address from, Size size, Visit visit) const {
  auto entry = known_.upper_bound(from);
  if (entry != known_.begin()) --entry;
  for (; entry != known_.end() && entry->first < from + size; ++entry) {
    auto const& [first, known] = *entry;
    Address const begin = std::max(first, from), end = std::min(first + known.size, from + size);
    if (begin < end) visit(begin, end, first, known);
  }
}

// Copies the known bytes to `to`, and zeros for the others. True if all bytes were known.
bool Values::read(Address from, char* to, Size size) const {
  std::memset(to, 0, size);
  Size copied = 0;
  each_known(from, size, [&](Address begin, Address end, Address first, Known const& known) {
    if (known.bytes.empty()) {
      std::memset(to + (begin - from), known.fill, end - begin);
    } else {
      std::memcpy(to + (begin - from), known.bytes.data() + (begin - first), end - begin);
    }
    copied += end - begin;
  });
  return copied == size;
}

void Values::copy_known(Address to, Address from, Size size) {
  std::vector<std::pair<Address, Known>> parts;
  each_known(from, size, [&](Address begin, Address end, Address first, Known const& known) {
    std::string bytes = known.bytes.empty() ? "" : known.bytes.substr(begin - first, end - begin);
    parts.emplace_back(to + (begin - from), Known{end - begin, std::move(bytes), known.fill});
  });
  forget(to, size);
  for (auto& [address, known] : parts) write(address, std::move(known));
}

}  // namespace allocbench::null_gpu

// Sets the function to call after each read of an unknown value, and to ask for the bits of a
// number.
NULL_GPU_API void null_on_read(std::uint64_t (*call)(std::uint64_t bytes)) {
  allocbench::null_gpu::Values::get().on_read(call);
}

// native/known_bytes.cpp: the contents of ranges of device memory.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/known_bytes.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

namespace allocbench::null_gpu {

namespace {

std::atomic<std::uint64_t> writes = 0;

bool is_uniform(char const* bytes, Size size) {
  return size > 1 && std::memcmp(bytes, bytes + 1, size - 1) == 0;
}

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
  for (auto entry = first_at(begin); entry != ranges_.end() && entry->first < begin + size;
       ++entry) {
    if (entry->second.written <= write) old.emplace_back(entry->first, entry->second.size);
  }
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
    if (range.bytes.empty()) {
      std::memset(to + (begin - from), range.fill, end - begin);
    } else {
      std::memcpy(to + (begin - from), range.bytes.data() + (begin - first), end - begin);
    }
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

}  // namespace allocbench::null_gpu

// native/virtual_memory.cpp: the rules of CUDA's virtual memory: reservations, pieces, mappings.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/virtual_memory.hpp"

#include <iterator>

#include "null_gpu/native/machine.hpp"

namespace allocbench::null_gpu {

VirtualMemory& virtual_memory() {
  static auto* instance =
      new VirtualMemory([](int device, Size size) { Machine::get().memory(device).give(size); });
  return *instance;
}

void VirtualMemory::reserved(Address begin, Size size) {
  std::lock_guard const lock(mutex_);
  reservations_[begin] = size;
}

Status VirtualMemory::unreserve(Address begin, Size size) {
  std::lock_guard const lock(mutex_);
  auto const entry = reservations_.find(begin);
  if (entry == reservations_.end() || entry->second != size) return kInvalidValue;
  auto const mapping = mappings_.lower_bound(begin);
  if (mapping != mappings_.end() && mapping->first < begin + size) return kInvalidValue;
  reservations_.erase(entry);
  return kSuccess;
}

VirtualMemory::Piece VirtualMemory::created(Size size, int device) {
  std::lock_guard const lock(mutex_);
  pieces_.emplace(++last_, Memory{size, device});
  return last_;
}

Status VirtualMemory::retain(Address address, Piece* piece) {
  std::lock_guard const lock(mutex_);
  auto const after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return kInvalidValue;
  auto const& [begin, mapping] = *std::prev(after);
  if (address >= begin + mapping.size) return kInvalidValue;
  *piece = mapping.piece;
  ++pieces_.at(mapping.piece).handles;
  return kSuccess;
}

Status VirtualMemory::release(Piece piece) {
  std::lock_guard const lock(mutex_);
  auto const entry = pieces_.find(piece);
  if (entry == pieces_.end() || entry->second.handles == 0) return kInvalidValue;
  --entry->second.handles;
  free_unused(piece);
  return kSuccess;
}

Status VirtualMemory::map(Address begin, Size size, Piece piece) {
  std::lock_guard const lock(mutex_);
  auto const entry = pieces_.find(piece);
  if (entry == pieces_.end() || entry->second.handles == 0 || begin % kPage != 0)
    return kInvalidValue;
  if (entry->second.size != size) return kNotSupported;  // a part of a piece, or more than it
  auto const after = reservations_.upper_bound(begin);
  if (after == reservations_.begin()) return kInvalidValue;
  auto const& [start, length] = *std::prev(after);
  auto const next = mappings_.lower_bound(begin);
  bool const overlaps =
      (next != mappings_.end() && next->first < begin + size) ||
      (next != mappings_.begin() && std::prev(next)->first + std::prev(next)->second.size > begin);
  if (begin + size > start + length || overlaps) return kInvalidValue;
  ++entry->second.mappings;
  mappings_.emplace(begin, Mapping{size, piece});
  return kSuccess;
}

Status VirtualMemory::unmap(Address begin, Size size) {
  std::lock_guard const lock(mutex_);
  if (!whole_mappings(begin, size)) return kInvalidValue;
  for (auto mapping = mappings_.find(begin);
       mapping != mappings_.end() && mapping->first < begin + size;) {
    Piece const piece = mapping->second.piece;
    mapping = mappings_.erase(mapping);
    --pieces_.at(piece).mappings;
    free_unused(piece);
  }
  return kSuccess;
}

Status VirtualMemory::allow(Address begin, Size size, int device) {
  std::lock_guard const lock(mutex_);
  if (!whole_mappings(begin, size)) return kInvalidValue;
  for (auto mapping = mappings_.find(begin);
       mapping != mappings_.end() && mapping->first < begin + size; ++mapping) {
    mapping->second.devices.insert(device);
  }
  return kSuccess;
}

bool VirtualMemory::allowed(Address address, int device) const {
  std::lock_guard const lock(mutex_);
  auto const after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return false;
  auto const& [begin, mapping] = *std::prev(after);
  return address < begin + mapping.size && mapping.devices.contains(device);
}

bool VirtualMemory::reserved_at(Address begin) const {
  std::lock_guard const lock(mutex_);
  return reservations_.contains(begin);
}

bool VirtualMemory::mapped(Address begin, Size size) const {
  std::lock_guard const lock(mutex_);
  auto mapping = mappings_.upper_bound(begin);
  if (mapping == mappings_.begin()) return false;
  --mapping;
  Address end = mapping->first;
  for (; mapping != mappings_.end() && mapping->first == end && end < begin + size; ++mapping) {
    end += mapping->second.size;
  }
  return end >= begin + size;
}

VirtualMemory::Counts VirtualMemory::counts() const {
  std::lock_guard const lock(mutex_);
  return {reservations_.size(), pieces_.size(), mappings_.size()};
}

bool VirtualMemory::whole_mappings(Address begin, Size size) const {
  Address end = begin;
  for (auto mapping = mappings_.find(begin);
       mapping != mappings_.end() && mapping->first == end && end < begin + size; ++mapping) {
    end += mapping->second.size;
  }
  return size != 0 && end == begin + size;
}

void VirtualMemory::free_unused(Piece piece) {
  auto const entry = pieces_.find(piece);
  if (entry->second.handles != 0 || entry->second.mappings != 0) return;
  Memory const memory = entry->second;
  pieces_.erase(entry);
  freed_(memory.device, memory.size);
}

}  // namespace allocbench::null_gpu

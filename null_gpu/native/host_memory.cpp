// native/host_memory.cpp: the pinned memory of the host.
// SPDX-License-Identifier: Apache-2.0
#include "null_gpu/native/host_memory.hpp"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>

namespace allocbench::null_gpu::pinned {

namespace {

std::mutex mutex;

std::map<Address, Size>& ranges() {
  static auto* instance = new std::map<Address, Size>;
  return *instance;
}

}  // namespace

void* allocate(Size size) {
  constexpr Size kHostPage = 4096;
  void* pointer = nullptr;
  if (posix_memalign(&pointer, kHostPage, std::max<Size>(size, 1)) != 0) return nullptr;
  add(pointer, size);
  return pointer;
}

void release(void* pointer) {
  remove(pointer);
  std::free(pointer);
}

void add(void* pointer, Size size) {
  std::lock_guard const lock(mutex);
  ranges()[reinterpret_cast<Address>(pointer)] = size;
}

void remove(void* pointer) {
  std::lock_guard const lock(mutex);
  ranges().erase(reinterpret_cast<Address>(pointer));
}

bool contains(void const* pointer) {
  std::lock_guard const lock(mutex);
  auto const address = reinterpret_cast<Address>(pointer);
  auto after = ranges().upper_bound(address);
  if (after == ranges().begin()) return false;
  auto const& [begin, size] = *std::prev(after);
  return address < begin + size;
}

}  // namespace allocbench::null_gpu::pinned

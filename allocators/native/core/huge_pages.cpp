// core/huge_pages.cpp: memory for large arrays.
// SPDX-License-Identifier: Apache-2.0
#include "core/huge_pages.hpp"

#include <sys/mman.h>

#include <new>

namespace allocbench {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;  // bytes
constexpr std::size_t kLeast = 2 * kHugePage;

std::align_val_t aligned(std::size_t bytes, std::size_t alignment) {
  return std::align_val_t{bytes < kLeast ? alignment : kHugePage};
}

}  // namespace

void* allocate_array(std::size_t bytes, std::size_t alignment) {
  void* const memory = ::operator new(bytes, aligned(bytes, alignment));
  // Where there are no huge pages, ordinary ones serve as well.
  if (bytes >= kLeast) ::madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return memory;
}

void deallocate_array(void* memory, std::size_t bytes, std::size_t alignment) {
  ::operator delete(memory, aligned(bytes, alignment));
}

}  // namespace allocbench

// core/huge_pages.hpp: large arrays in huge pages.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace allocbench {

// Memory for an array, at a multiple of `alignment`. Arrays of several MiB are aligned to huge
// pages and the kernel is advised to use these, because random accesses to an array in pages of
// 4 KiB mostly miss the processor's cache of page addresses. Throws std::bad_alloc.
void* allocate_array(std::size_t bytes, std::size_t alignment);
void deallocate_array(void* memory, std::size_t bytes, std::size_t alignment);

// An allocator for containers of the standard library.
template <class Value>
struct HugePages {
  using value_type = Value;

  HugePages() = default;
  template <class Other>
  HugePages(HugePages<Other> const&) {}

  Value* allocate(std::size_t count) {
    return static_cast<Value*>(allocate_array(count * sizeof(Value), alignof(Value)));
  }
  void deallocate(Value* memory, std::size_t count) {
    deallocate_array(memory, count * sizeof(Value), alignof(Value));
  }

  friend bool operator==(HugePages const&, HugePages const&) { return true; }
};

template <class Value>
using LargeArray = std::vector<Value, HugePages<Value>>;

}  // namespace allocbench

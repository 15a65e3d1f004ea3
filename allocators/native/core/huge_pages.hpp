// core/huge_pages.hpp: large arrays in huge pages.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <vector>

namespace allocbench {

// An allocator for containers of the standard library. Arrays of several MiB are aligned to huge
// pages and the kernel is advised to use these, because random accesses to an array in pages of
// 4 KiB mostly miss the processor's cache of page addresses.
template <class Value>
struct HugePages {
  using value_type = Value;

  HugePages() = default;
  template <class Other>
  HugePages(HugePages<Other> const&) {}

  Value* allocate(std::size_t count) {
    std::size_t const bytes = count * sizeof(Value);
    void* const memory = ::operator new(bytes, alignment(count));
    // Where there are no huge pages, ordinary ones serve as well.
    if (bytes >= kLeast) ::madvise(memory, bytes / kPage * kPage, MADV_HUGEPAGE);
    return static_cast<Value*>(memory);
  }
  void deallocate(Value* memory, std::size_t count) { ::operator delete(memory, alignment(count)); }

  friend bool operator==(HugePages const&, HugePages const&) { return true; }

 private:
  static constexpr std::size_t kPage = std::size_t{2} << 20;  // bytes
  static constexpr std::size_t kLeast = 2 * kPage;

  static std::align_val_t alignment(std::size_t count) {
    return std::align_val_t{count * sizeof(Value) < kLeast ? alignof(Value) : kPage};
  }
};

template <class Value>
using LargeArray = std::vector<Value, HugePages<Value>>;

}  // namespace allocbench

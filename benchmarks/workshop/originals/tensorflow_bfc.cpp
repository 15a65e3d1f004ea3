// TensorFlow's BFCAllocator, from the package tensorflow-cpu, as a pluggable allocator.
// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <new>

#include "absl/log/globals.h"
#include "runtime.hpp"
#include "xla/tsl/framework/bfc_allocator.h"

namespace {

// A device that refuses small requests for ever would make BFCAllocator ask for ever.
constexpr int kMostRefusals = 100;

class Gpu : public tsl::SubAllocator {
 public:
  Gpu() : tsl::SubAllocator({}, {}) {}

  void* Alloc(size_t, size_t size, size_t* received) override {
    void* const made = original::segment(size);
    *received = made == nullptr ? 0 : size;
    refusals_ = made == nullptr && size == last_ ? refusals_ + 1 : 0;
    last_ = size;
    if (refusals_ == kMostRefusals) throw std::bad_alloc();
    return made;
  }
  void Free(void* segment, size_t) override { cudaFree(segment); }
  bool SupportsCoalescing() const override { return false; }

 private:
  size_t last_ = 0;
  int refusals_ = 0;
};

std::unique_ptr<tsl::BFCAllocator> bfc;

}  // namespace

ORIGINAL void* my_malloc(ssize_t size, int, void*) {
  if (bfc == nullptr) {
    absl::SetMinLogLevel(absl::LogSeverityAtLeast::kInfinity);
    tsl::BFCAllocator::Options options;
    options.allow_growth = true;
    options.allow_retry_on_failure = false;
    bfc = std::make_unique<tsl::BFCAllocator>(std::make_unique<Gpu>(), original::capacity(), "gpu",
                                              options);
  }
  tsl::AllocationAttributes at_once;
  at_once.retry_on_failure = false;
  try {
    return bfc->AllocateRaw(256, static_cast<size_t>(size), at_once);
  } catch (std::bad_alloc const&) {
    return nullptr;
  }
}

ORIGINAL void my_free(void* block, ssize_t, int, void*) { bfc->DeallocateRaw(block); }

// strategies/cuda_async.cpp: the CUDA driver's stream-ordered memory pool.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/cuda_async.hpp"

#include <utility>

#include "core/errors.hpp"

namespace allocbench {
CudaAsync::CudaAsync(Device& device, Options const& options)
    : Allocator(device),
      driver_(dynamic_cast<PoolDevice&>(device)),
      pool_(driver_.open_pool(
          options.given("release_threshold") ? options.bytes("release_threshold") : ~Size{0},
          this)) {
  if (pool_ != 0) return;
  throw_failure();
  throw DeviceError("the device failed to create a memory pool");
}

Block CudaAsync::do_allocate(Size requested, Stream stream) {
  Address address = driver_.allocate_from(pool_, requested, stream);
  Size const held = driver_.held_by(pool_);
  if (address != 0 && held > held_ && held - held_ > permitted()) {
    driver_.free_to(pool_, address, stream);
    driver_.trim_pool(pool_);
    address = 0;
  }
  count_change();
  return address == 0 ? Block{} : blocks_.insert(address, requested);
}

Block CudaAsync::do_deallocate(Address address, Stream stream) {
  Block const block = blocks_.erase(address);
  if (block.size == 0) return block;
  driver_.free_to(pool_, address, stream);
  count_change();
  return block;
}

void CudaAsync::do_trim() {
  driver_.trim_pool(pool_);
  count_change();
}

// The pool changes in these calls, and when the device takes its free memory for something else.
void CudaAsync::count_change() {
  Size const before = std::exchange(held_, driver_.held_by(pool_));
  if (held_ > before) count_reserved(held_ - before);
  if (held_ < before) count_unreserved(before - held_);
}

}  // namespace allocbench

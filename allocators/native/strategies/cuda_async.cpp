// strategies/cuda_async.cpp: the CUDA driver's stream-ordered memory pool.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/cuda_async.hpp"

#include "core/errors.hpp"

namespace allocbench {
CudaAsync::CudaAsync(Device& device, Options const& options)
    : Allocator(device),
      driver_(dynamic_cast<DriverPools&>(device)),
      pool_(driver_.open_pool(
          options.given("release_threshold") ? options.bytes("release_threshold") : ~Size{0},
          this)) {
  if (pool_ != 0) return;
  throw_failure();
  throw DeviceError("the device failed to create a memory pool");
}

Block CudaAsync::do_allocate(Size requested, Stream stream) {
  Size const before = driver_.held_by(pool_);
  Address address = driver_.allocate_from(pool_, requested, stream);
  Size const held = driver_.held_by(pool_);
  if (address != 0 && held > before && held - before > permitted()) {
    driver_.free_to(pool_, address, stream);
    driver_.trim_pool(pool_);
    address = 0;
  }
  count_change(before);
  return address == 0 ? Block{} : blocks_.insert(address, requested);
}

Block CudaAsync::do_deallocate(Address address, Stream stream) {
  Block const block = blocks_.erase(address);
  if (block.size == 0) return block;
  Size const before = driver_.held_by(pool_);
  driver_.free_to(pool_, address, stream);
  count_change(before);
  return block;
}

void CudaAsync::do_trim() {
  Size const before = driver_.held_by(pool_);
  driver_.trim_pool(pool_);
  count_change(before);
}

void CudaAsync::count_change(Size before) {
  Size const after = driver_.held_by(pool_);
  if (after > before) count_reserved(after - before);
  if (after < before) count_unreserved(before - after);
}

}  // namespace allocbench

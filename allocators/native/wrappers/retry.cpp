// wrappers/retry.cpp: a failing request waits for other threads to free memory.
// SPDX-License-Identifier: Apache-2.0
#include "wrappers/retry.hpp"

namespace allocbench {

Retry::Retry(Device& device, Seconds longest, std::unique_ptr<Allocator> inner)
    : Wrapper(device, [&inner] { return std::move(inner); }), longest_(longest) {}

Block Retry::do_allocate(Size requested, Stream stream) {
  using Clock = std::chrono::steady_clock;
  Block block = Wrapper::do_allocate(requested, stream);
  auto const deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(longest_);
  bool in_time = requested <= device().capacity();
  while (in_time && block.size == 0 && counted().allocated.current > 0) {
    in_time = memory_freed_.wait_until(lock(), deadline) == std::cv_status::no_timeout;
    block = Wrapper::do_allocate(requested, stream);
  }
  return block;
}

Block Retry::do_deallocate(Address address, Stream stream) {
  Block const block = Wrapper::do_deallocate(address, stream);
  memory_freed_.notify_all();
  return block;
}

void Retry::do_trim() {
  Wrapper::do_trim();
  memory_freed_.notify_all();
}

void Retry::do_trim_pool(PoolId pool) {
  Wrapper::do_trim_pool(pool);
  memory_freed_.notify_all();
}

}  // namespace allocbench

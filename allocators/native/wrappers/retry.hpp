// wrappers/retry.hpp: a failing request waits for other threads to free memory.
// SPDX-License-Identifier: Apache-2.0
//
// The registry puts this wrapper around the whole stack if an option of the strategy asks for it:
// only the outermost allocator can wait, because frees need its lock. The request is repeated
// whenever memory is freed, until the time is over. It does not wait if no block is allocated or if
// it exceeds the capacity of the device.
#pragma once

#include <chrono>
#include <condition_variable>
#include <utility>

#include "wrappers/wrapper.hpp"

namespace allocbench {

class Retry final : public Wrapper {
 public:
  using Seconds = std::chrono::duration<double>;

  Retry(Device& device, Seconds longest, std::unique_ptr<Allocator> inner)
      : Wrapper(device, [&inner] { return std::move(inner); }), longest_(longest) {}

 private:
  Block do_allocate(Size requested, Stream stream) override {
    using Clock = std::chrono::steady_clock;
    Block block = Wrapper::do_allocate(requested, stream);
    auto const deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(longest_);
    bool in_time = device().has(requested);
    while (in_time && block.size == 0 && counted().allocated.current > 0) {
      in_time = memory_freed_.wait_until(lock(), deadline) == std::cv_status::no_timeout;
      block = Wrapper::do_allocate(requested, stream);
    }
    return block;
  }

  Block do_deallocate(Address address, Stream stream) override {
    Block const block = Wrapper::do_deallocate(address, stream);
    memory_freed_.notify_all();
    return block;
  }

  void do_trim() override {
    Wrapper::do_trim();
    memory_freed_.notify_all();
  }

  void do_trim_pool(PoolId pool) override {
    Wrapper::do_trim_pool(pool);
    memory_freed_.notify_all();
  }

  Seconds longest_;
  std::condition_variable_any memory_freed_;
};

}  // namespace allocbench

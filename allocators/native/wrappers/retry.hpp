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

  Retry(Device& device, Seconds longest, std::unique_ptr<Allocator> inner);

 private:
  Block do_allocate(Size requested, Stream stream) override;
  Block do_deallocate(Address address, Stream stream) override;
  void do_trim() override;
  void do_trim_pool(PoolId pool) override;

  Seconds longest_;
  std::condition_variable_any memory_freed_;
};

}  // namespace allocbench

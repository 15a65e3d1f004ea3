// locks.hpp: locks of the programs that need no allocbench, in the simplest form.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <thread>

struct NoLock {
  void lock() {}
  void unlock() {}
};

class SpinLock {
 public:
  void lock() {
    while (taken_.exchange(true, std::memory_order_acquire))
      while (taken_.load(std::memory_order_relaxed)) std::this_thread::yield();
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_ = false;
};

// core/lock.hpp: a mutual exclusion lock for critical sections of some tens of nanoseconds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <thread>

namespace allocbench {

// One atomic exchange to lock, one store to unlock. A waiter spins briefly, then yields: a
// section is short except when it calls the device. Meets the standard's Lockable.
class Lock {
 public:
  bool try_lock() { return !held_.exchange(true, std::memory_order_acquire); }
  void unlock() { held_.store(false, std::memory_order_release); }

  void lock() {
    while (!try_lock())
      for (int spins = 0; held_.load(std::memory_order_relaxed); ++spins)
        if (spins > 64) std::this_thread::yield();
  }

 private:
  std::atomic<bool> held_ = false;
};

}  // namespace allocbench

// core/lock.hpp: a lock for critical sections of tens of nanoseconds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <thread>

namespace allocbench {

// One atomic exchange locks, and one store unlocks. A waiting thread spins briefly and then yields,
// because critical sections are short unless they call the device. Meets the Lockable requirements.
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

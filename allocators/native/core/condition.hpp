// core/condition.hpp: a condition variable for core/lock.hpp.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>

#include "core/lock.hpp"

namespace allocbench {

// The caller must hold the lock during both calls. `notify_all` costs one comparison if no thread
// waits.
class Condition {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Releases the lock until `notify_all` or the deadline; false if the deadline has passed.
  bool wait_until(Lock& lock, Time deadline);
  void notify_all() {
    if (waiting_ > 0) [[unlikely]]
      wake();
  }

 private:
  void wake();

  int waiting_ = 0;
  std::condition_variable_any changed_;
};

}  // namespace allocbench

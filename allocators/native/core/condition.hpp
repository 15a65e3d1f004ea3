// core/condition.hpp: waiting, under a lock, for what another thread does.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>

#include "core/lock.hpp"

namespace allocbench {

// Both calls are made with the lock held. Telling nobody costs one comparison.
class Condition {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Gives the lock up until `notify_all` or the deadline; false when it was the deadline.
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

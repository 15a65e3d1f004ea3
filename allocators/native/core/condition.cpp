// core/condition.cpp: a condition variable for core/lock.hpp.
// SPDX-License-Identifier: Apache-2.0
#include "core/condition.hpp"

namespace allocbench {

bool Condition::wait_until(Lock& lock, Time deadline) {
  ++waiting_;
  bool const in_time = changed_.wait_until(lock, deadline) == std::cv_status::no_timeout;
  --waiting_;
  return in_time;
}

void Condition::wake() { changed_.notify_all(); }

}  // namespace allocbench

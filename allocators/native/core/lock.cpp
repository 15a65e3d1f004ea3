// core/lock.cpp: the slow path of a lock that is biased towards a thread.
// SPDX-License-Identifier: Apache-2.0
#include "core/lock.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <thread>

namespace allocbench {
namespace {

bool membarrier(int command) { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

bool prepare_barriers() { return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED); }

bool can_make_barriers() {
  static bool const can = prepare_barriers();
  return can;
}

// Every running thread of the process executes a memory barrier before this returns true.
bool make_barriers() {
  // A process that was forked may have to register again.
  return membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) ||
         (prepare_barriers() && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED));
}

void wait_while(std::atomic<bool> const& flag) {
  for (int spins = 0; flag.load(std::memory_order_acquire); ++spins)
    if (spins > 64) std::this_thread::yield();
}

std::atomic<std::uint64_t> last_thread = 0;

}  // namespace

void Lock::lock_unowned() {
  if (this_thread_ == 0) this_thread_ = ++last_thread;
  while (held_.exchange(true, std::memory_order_acquire)) wait_while(held_);
  if (owner_.load(std::memory_order_relaxed) != kNobody) revoke();
  by_owner_ = false;
  streak_ = last_ == this_thread_ ? streak_ + 1 : 0;
  last_ = this_thread_;
  if (streak_ < needed_ || !can_make_barriers()) return;
  if (first_owner_ == kNobody) first_owner_ = this_thread_;
  if (first_owner_ != this_thread_) return;
  owner_.store(this_thread_, std::memory_order_relaxed);
}

// The calling thread has set held_.
void Lock::revoke() {
  ThreadNumber const owner = owner_.exchange(kNobody, std::memory_order_relaxed);
  if (!make_barriers()) {  // forbidden since the last time
    int const error = errno;
    owner_.store(owner, std::memory_order_relaxed);
    held_.store(false, std::memory_order_release);
    throw std::system_error(error, std::system_category(), "membarrier");
  }
  wait_while(busy_);
  needed_ = std::min(2 * needed_, kLongestStreak);
  last_ = kNobody;
}

}  // namespace allocbench

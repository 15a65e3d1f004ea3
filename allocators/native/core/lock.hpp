// core/lock.hpp: a lock for critical sections of tens of nanoseconds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace allocbench {

// A spin lock that is biased towards a thread. The atomic exchange of a spin lock takes longer than
// the rest of a short critical section, because it waits for all earlier stores. A thread that has
// taken the lock many times in a row owns it, and from then on locks and unlocks with plain stores
// and loads. When another thread needs the lock, it revokes the ownership: it makes all threads of
// the process execute a memory barrier (membarrier(2)), after which the owner has seen the
// revocation or has been seen in its critical section. The number of times in a row doubles with
// each revocation, so threads that take turns share a plain spin lock. Where the kernel has no
// membarrier(2), it always is one.
//
// Only the first owner can own the lock again: a thread may be interrupted between the look at
// owner_ and the stores to busy_, which must not end the critical section of a later owner.
//
// A waiting thread spins briefly and then yields, because critical sections are short unless they
// call the device. Meets the BasicLockable requirements. Not recursive.
//
// Source: Dice, Moir and Scherer, Quickly reacquirable locks, 2003; Russell and Detlefs,
// Eliminating synchronization-related atomic operations with biased locking and bulk rebiasing,
// OOPSLA 2006.
class Lock {
 public:
  [[gnu::always_inline]] void lock() {
    if (owner_.load(std::memory_order_relaxed) == this_thread_) {
      busy_.store(true, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // the order that the barrier upholds
      if (owner_.load(std::memory_order_acquire) == this_thread_) [[likely]] {
        by_owner_ = true;
        return;
      }
      busy_.store(false, std::memory_order_release);
    }
    lock_unowned();
  }

  // For functions of which every nanosecond counts: std::scoped_lock is not always inlined.
  class Guard {
   public:
    [[gnu::always_inline]] explicit Guard(Lock& lock) : lock_(lock) { lock_.lock(); }
    [[gnu::always_inline]] ~Guard() { lock_.unlock(); }
    Guard(Guard const&) = delete;
    Guard& operator=(Guard const&) = delete;

   private:
    Lock& lock_;
  };

  void unlock() { (by_owner_ ? busy_ : held_).store(false, std::memory_order_release); }

 private:
  using ThreadNumber = std::uint64_t;  // never used again after the end of the thread
  static constexpr ThreadNumber kNobody = ~ThreadNumber{0};
  static constexpr std::uint64_t kFirstStreak = 32;
  static constexpr std::uint64_t kLongestStreak = 1 << 20;

  void lock_unowned();
  void revoke();

  // 0 until the thread first takes a lock that it does not own.
  [[gnu::tls_model(
      "initial-exec")]] static inline thread_local constinit ThreadNumber this_thread_ = 0;

  std::atomic<ThreadNumber> owner_ = kNobody;  // changes only while held_
  std::atomic<bool> busy_ = false;             // the owner is in its critical section
  std::atomic<bool> held_ = false;             // a thread is in a critical section by lock_unowned
  // Of the thread in the critical section:
  bool by_owner_ = false;
  ThreadNumber first_owner_ = kNobody;
  ThreadNumber last_ = kNobody;  // the last thread in lock_unowned
  std::uint64_t streak_ = 0;     // its calls in a row
  std::uint64_t needed_ = kFirstStreak;
};

}  // namespace allocbench

// core/lock.hpp: a lock for critical sections of tens of nanoseconds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

namespace allocbench {

// A spin lock that is biased towards a thread. The atomic exchange of a spin lock takes longer than
// the rest of a short critical section, because it waits for all earlier stores. The owner of the
// lock enters and leaves with plain stores and loads. When another thread needs the lock, it
// revokes the ownership: it makes all threads of the process execute a memory barrier
// (membarrier(2)), after which the owner has seen the revocation or has been seen in its critical
// section. Where the kernel has no membarrier(2), no thread owns the lock.
//
// A thread becomes the owner in two ways:
// - It has taken the lock many times in a row. The number doubles with each revocation, so threads
//   that take turns share a plain spin lock.
// - Threads often wait for each other. Then each owns the lock in turn, for a fraction of
//   a millisecond, while the others sleep. So they do not move the lock and what it protects from
//   processor to processor with each call. An owner that rarely uses the lock loses it at once.
//
// A thread may be interrupted between the look at owner_ and the stores to its flag, which must not
// end the critical section of a later owner. So each thread has a flag of its own.
//
// Meets the BasicLockable requirements. Not recursive, and not fair.
//
// Source: Dice, Moir and Scherer, Quickly reacquirable locks, 2003; Russell and Detlefs,
// Eliminating synchronization-related atomic operations with biased locking and bulk rebiasing,
// OOPSLA 2006. Turns of many calls: Dice, Marathe and Shavit, Lock cohorting, PPoPP 2012.
class Lock {
 public:
  [[gnu::always_inline]] void lock() { entered_ = &enter(); }
  [[gnu::always_inline]] void unlock() { entered_->store(false, std::memory_order_release); }

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

 private:
  using Clock = std::chrono::steady_clock;
  using ThreadNumber = std::uint32_t;
  // The lowest numbers that no other living thread has; threads beyond that cannot own locks.
  static constexpr ThreadNumber kNumbers = 64;
  static constexpr ThreadNumber kUnnumbered = kNumbers;
  static constexpr ThreadNumber kNobody = kNumbers + 1;
  static constexpr std::uint64_t kFirstStreak = 32;
  static constexpr std::uint64_t kLongestStreak = 1 << 20;
  static constexpr std::uint32_t kHot = 64;    // the contention_ from which threads take turns
  static constexpr std::uint32_t kWaited = 8;  // added to contention_ by a call that waited
  static constexpr std::chrono::microseconds kTurn{100};
  static constexpr Clock::time_point kNoTurn = {};  // the owner became it by a streak

  // Returns the flag that is set while the thread is in the critical section.
  [[gnu::always_inline]] std::atomic<bool>& enter() {
    ThreadNumber const self = this_thread_;
    if (owner_.load(std::memory_order_relaxed) == self) {
      std::atomic<bool>& busy = busy_[self];
      busy.store(true, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);  // the order that the barrier upholds
      if (owner_.load(std::memory_order_acquire) == self) [[likely]]
        return busy;
      busy.store(false, std::memory_order_release);
    }
    return enter_unowned();
  }

  std::atomic<bool>& enter_unowned();
  bool hold();
  bool revoke();
  bool constantly_used_by(ThreadNumber owner) const;

  static ThreadNumber take_number();
  [[gnu::tls_model(
      "initial-exec")]] static inline thread_local constinit ThreadNumber this_thread_ =
      kUnnumbered;

  std::atomic<ThreadNumber> owner_ = kNobody;          // changes only while held_
  std::array<std::atomic<bool>, kNumbers> busy_ = {};  // this owner is in its critical section
  std::atomic<bool>* entered_ = nullptr;  // by `lock`, by the thread in the critical section

  // Apart from what the owner uses, because other threads look at it while they wait: a thread is
  // in a critical section by enter_unowned.
  alignas(64) std::atomic<bool> held_ = false;
  std::atomic<ThreadNumber> last_owner_ = kNobody;  // whose turn has been ended
  // Of the thread that has set held_:
  ThreadNumber last_ = kNobody;  // the last thread in enter_unowned
  std::uint32_t contention_ = 0;
  std::uint64_t streak_ = 0;  // calls of `last_` in a row
  std::uint64_t needed_ = kFirstStreak;
  Clock::time_point turn_ends_ = kNoTurn;
};

// A fork of the process waits until the lock is free, so that the child has a whole copy of what it
// protects. No thread may fork, or make or destroy a HeldAtFork, while it holds the lock, or wait
// for another lock of this kind.
class HeldAtFork {
 public:
  template <class L>
  explicit HeldAtFork(L& lock) : HeldAtFork([&lock] { lock.lock(); }, [&lock] { lock.unlock(); }) {}
  HeldAtFork(HeldAtFork const&) = delete;
  HeldAtFork& operator=(HeldAtFork const&) = delete;
  ~HeldAtFork();

  std::function<void()> const lock, unlock;

 private:
  HeldAtFork(std::function<void()> lock, std::function<void()> unlock);
};

}  // namespace allocbench

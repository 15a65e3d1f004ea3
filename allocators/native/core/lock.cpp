// core/lock.cpp: the slow path of a lock that is biased towards a thread.
// SPDX-License-Identifier: Apache-2.0
#include "core/lock.hpp"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

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

constexpr std::chrono::microseconds kNap{20};  // Linux adds 50 to it
constexpr int kSpins = 64;
constexpr int kYields = 16;

// Longer and longer pauses of a thread that waits: most critical sections are short, but those that
// call the device are not, and a thread may be interrupted in any.
class Pauses {
 public:
  void pause() {
    ++pauses_;
    if (pauses_ <= kSpins) return;
    if (naps())
      std::this_thread::sleep_for(kNap);
    else
      std::this_thread::yield();
  }
  bool naps() const { return pauses_ > kSpins + kYields; }

 private:
  int pauses_ = 0;
};

// The locks that a fork takes. Never destroyed: allocators may outlive static objects.
struct Forks {
  std::mutex mutex;
  std::set<HeldAtFork const*> all;
  std::vector<HeldAtFork const*> held;  // by the thread that forks

  static Forks& instance() {
    static auto* const forks = [] {
      pthread_atfork(&before, &after, &after);
      return new Forks;
    }();
    return *forks;
  }
  static void before() {
    Forks& forks = instance();
    forks.mutex.lock();
    for (HeldAtFork const* one : forks.all) {
      try {
        one->lock();
        forks.held.push_back(one);
      } catch (std::system_error const&) {  // of membarrier: its copy may be in use for ever
      }
    }
  }
  static void after() {
    Forks& forks = instance();
    for (HeldAtFork const* one : std::exchange(forks.held, {})) one->unlock();
    forks.mutex.unlock();
  }
};

// The numbers of living threads, one bit for each. A thread gives its number back when it ends; the
// next one that takes it also gets what the first one owned.
constinit std::atomic<std::uint64_t> numbers = 0;

}  // namespace

HeldAtFork::HeldAtFork(std::function<void()> locking, std::function<void()> unlocking)
    : lock(std::move(locking)), unlock(std::move(unlocking)) {
  Forks& forks = Forks::instance();
  std::scoped_lock const guard(forks.mutex);
  forks.all.insert(this);
}

HeldAtFork::~HeldAtFork() {
  Forks& forks = Forks::instance();
  std::scoped_lock const guard(forks.mutex);
  forks.all.erase(this);
}

Lock::ThreadNumber Lock::take_number() {
  static thread_local constinit bool ended = false;
  struct GivesBack {
    ThreadNumber number = kUnnumbered;
    ~GivesBack() {
      // Objects that are destroyed later may still use locks.
      ended = true;
      this_thread_ = kUnnumbered;
      if (number != kUnnumbered)
        numbers.fetch_and(~(std::uint64_t{1} << number), std::memory_order_release);
    }
  };
  if (ended) return kUnnumbered;
  static thread_local GivesBack at_end;
  std::uint64_t taken = numbers.load(std::memory_order_relaxed);
  do {
    if (taken == ~std::uint64_t{0}) return kUnnumbered;
  } while (!numbers.compare_exchange_weak(taken, taken | (taken + 1), std::memory_order_acquire));
  return at_end.number = static_cast<ThreadNumber>(std::countr_one(taken));
}

std::atomic<bool>& Lock::enter_unowned() {
  if (this_thread_ == kUnnumbered) this_thread_ = take_number();
  bool const waited = hold();
  contention_ = waited ? contention_ + kWaited : contention_ - (contention_ > 0);
  streak_ = last_ == this_thread_ ? streak_ + 1 : 0;
  last_ = this_thread_;
  if (owner_.load(std::memory_order_relaxed) != kNobody && revoke()) contention_ = kHot;
  bool const hot = contention_ >= kHot;
  if ((hot || streak_ >= needed_) && this_thread_ != kUnnumbered && can_make_barriers()) {
    turn_ends_ = hot ? Clock::now() + kTurn : kNoTurn;
    contention_ = 0;
    owner_.store(this_thread_, std::memory_order_relaxed);
  }
  return held_;
}

// Sets held_. Returns true if this took long.
bool Lock::hold() {
  // A thread whose turn has ended lets others go first.
  if (last_owner_.load(std::memory_order_relaxed) == this_thread_) {
    last_owner_.store(kNobody, std::memory_order_relaxed);
    std::this_thread::sleep_for(kNap);
  }
  Pauses pauses;
  bool waited = false;
  for (; held_.exchange(true, std::memory_order_acquire); waited = true)
    while (held_.load(std::memory_order_relaxed)) pauses.pause();
  return waited;
}

// Takes the lock from its owner; the calling thread has set held_. Returns true if the owner
// constantly uses it, after the end of its turn.
bool Lock::revoke() {
  ThreadNumber const owner = owner_.load(std::memory_order_relaxed);
  bool const hot = constantly_used_by(owner);
  if (hot) {
    std::this_thread::sleep_until(turn_ends_);
    last_owner_.store(owner, std::memory_order_relaxed);
  } else if (turn_ends_ == kNoTurn) {
    needed_ = std::min(2 * needed_, kLongestStreak);
  }
  owner_.store(kNobody, std::memory_order_relaxed);
  if (!make_barriers()) {  // forbidden since the last time
    int const error = errno;
    owner_.store(owner, std::memory_order_relaxed);
    held_.store(false, std::memory_order_release);
    throw std::system_error(error, std::system_category(), "membarrier");
  }
  for (Pauses pauses; busy_[owner].load(std::memory_order_acquire);) pauses.pause();
  streak_ = 0;
  return hot;
}

// Whether an owner is in its critical section for at least a quarter of the time.
bool Lock::constantly_used_by(ThreadNumber owner) const {
  constexpr int kLooks = 16;
  int seen = 0;
  for (int look = 0; look < kLooks; ++look) {
    (void)Clock::now();  // takes tens of nanoseconds, about as long as a critical section
    seen += busy_[owner].load(std::memory_order_relaxed);
  }
  return 4 * seen >= kLooks;
}

}  // namespace allocbench

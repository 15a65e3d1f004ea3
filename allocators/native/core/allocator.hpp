// core/allocator.hpp: the interface of every strategy.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/device.hpp"
#include "core/lock.hpp"
#include "core/options.hpp"
#include "core/stats.hpp"
#include "core/types.hpp"

namespace allocbench {

// What a strategy says about itself.
struct StrategyInfo {
  std::string_view name;
  std::string_view summary;     // the idea in a sentence
  std::string_view worst_case;  // the waste that it cannot exclude
  std::string_view reference;   // where the algorithm comes from
  std::span<Option const> options = {};
  bool candidate = true;          // may be recommended
  bool keeps_free_blocks = true;  // false: external fragmentation does not apply
  // The largest request that an empty device of `capacity` bytes must serve.
  Size (*largest_request)(Size capacity) = [](Size capacity) { return capacity; };
  std::string_view exemption = "";  // why largest_request is below the capacity
  // The option with the seconds for which a failing request waits for frees by other threads.
  std::string_view retry_option = "";
  bool by_stream = false;  // a freed block serves only requests of its own stream
  bool by_pool = false;    // knows private pools; otherwise each has its own instance
  // Blocks come from a memory pool of the driver, which does not expose its segments: a snapshot
  // shows each block as a segment, and reserved bytes exceed their sum. Not every device has such
  // pools.
  bool from_driver_pool = false;
};

// Public calls lock, check and count; a strategy writes the `do_` functions, which run under
// the lock. Requests of 0 bytes give the null address, and freeing the null address does nothing.
class Allocator {
 public:
  explicit Allocator(Device& device) : device_(device) {}
  Allocator(Allocator const&) = delete;
  Allocator& operator=(Allocator const&) = delete;
  virtual ~Allocator();

  // Throws OutOfMemory, or DeviceError when the request failed because of another device error.
  Address allocate(Size requested, Stream stream = 0);
  Block try_allocate(Size requested, Stream stream = 0);  // size 0: out of memory
  // Throws BadFree, and changes nothing, unless `address` is an allocated block of this allocator.
  // Throws DeviceError, after freeing the block, when the device failed to take memory back.
  void deallocate(Address address, Stream stream = 0);
  Block try_deallocate(Address address, Stream stream = 0);  // size 0: no such block
  // Gives wholly free segments back to the device. Throws DeviceError when the device fails, and
  // InvariantViolation as `check_sums` does.
  void trim();
  void reset_peaks();  // sets the peak statistics to the current bytes
  // A training or inference step begins.
  void step() {
    locked([this] { do_step(); });
  }

  std::vector<Segment> snapshot() const;  // in order of address
  void check() const;                     // throws InvariantViolation naming the broken rule
  void check_sums() const;                // the rules about bytes only
  // In bytes; 0 when no block is free.
  Size largest_free() const {
    return locked([this] { return do_largest_free(); });
  }
  Stats stats() const {
    return locked([this] { return stats_; });
  }
  Counters counters() const {
    return locked([this] { return do_counters(); });
  }
  // What this strategy adds to an out-of-memory message.
  std::string summary() const {
    return locked([this] { return do_summary(); });
  }
  std::string describe_failure(Size requested) const;  // the out-of-memory message
  Device& device() const { return device_; }
  // From now on, a process forks between two calls of this allocator, which nothing encloses.
  void hold_at_fork() { at_fork_.emplace(lock_); }
  virtual StrategyInfo const& info() const = 0;

 protected:
  struct Acquired {
    Address address;  // 0: the device refused
    Size size;
  };
  // From now on, what `inner` gets from the device also counts as reserved by this allocator and
  // never exceeds do_room(). Only the `do_` functions of this allocator may call `inner`.
  void enclose(Allocator& inner) { inner.outer_ = this; }

  Size room() const;               // bytes that may still be reserved
  bool has_room(Size size) const;  // whether `size` bytes may; ask this where it suffices
  Address acquire(Size size);      // a segment from the device, or 0
  // A segment of `wanted` bytes. Each time the device refuses, tries half the size, down to
  // `least`. Sizes are multiples of `unit`; so must `least` be.
  Acquired acquire_between(Size least, Size wanted, Size unit);
  void release(Address segment, Size size);
  // False while the device takes nothing back. What a strategy gives back then serves no request.
  bool returns_memory() const { return !device_.keeps_memory(); }
  Address reserve(Size size);  // an address range from the device, or 0
  void unreserve(Address reservation);
  // Both take `size` bytes in pages of `page` bytes. `map` returns false, and maps nothing, when
  // the device refuses any page.
  bool map(Address first, Size size, Size page);
  void unmap(Address first, Size size, Size page);
  // What the functions above do, for a strategy that calls the device itself.
  Size permitted() const;  // bytes that the enclosing allocators allow
  void count_reserved(Size size);
  void count_unreserved(Size size);
  // Throws DeviceError if the device reported a failure.
  void throw_failure() {
    if (device_.failed()) [[unlikely]]
      throw_taken_failure();
  }
  void count_retry();
  void count_allocation(Size allocated, Size requested) {
    ++stats_.allocations;
    stats_.requested.add(requested);
    stats_.allocated.add(allocated);
  }
  // Counts the blocks of a layout that `take` takes over, unless this allocator lacks room for it,
  // already holds memory or `take` returns false.
  bool take_over(std::vector<HeldSegment> const& layout, std::function<bool()> const& take);
  Stats const& counted() const { return stats_; }
  Lock& lock() const { return lock_; }  // held by the public calls
  template <class Call>
  std::invoke_result_t<Call> locked(Call call) const {
    std::scoped_lock const guard(lock_);
    return call();
  }
  // What `trim` does, with another way to give memory back. Checks the sums, unless only a few
  // calls have been made since that was last done: it takes time for each block.
  void trim_by(std::function<void()> const& give_back);

  // Strategies make these two `flatten`: what they call becomes part of them, except for what is
  // `noinline` because few requests need it.
  virtual Block do_allocate(Size requested, Stream stream) = 0;     // size 0: out of memory
  virtual Block do_deallocate(Address address, Stream stream) = 0;  // size 0: not our block
  virtual void do_trim() = 0;
  virtual void do_step() {}
  virtual std::vector<Segment> do_snapshot() const = 0;
  virtual Size do_largest_free() const = 0;
  virtual void do_check() const {}  // the rules of this strategy
  virtual Counters do_counters() const { return {}; }
  virtual std::string do_summary() const { return {}; }  // appended to an out-of-memory message
  virtual bool do_forwards() const {
    return false;
  }  // passes every request on to enclosed allocators
  virtual Size do_room() const {
    return ~Size{0};
  }  // the most that an enclosed allocator may reserve

 private:
  Block serve(Size requested, Stream stream);
  Block free(Address address, Stream stream);
  void throw_taken_failure();
  [[noreturn]] void throw_bad_free(Address address) const;
  std::vector<Segment> sorted_snapshot() const;
  std::uint64_t check_sums(std::vector<Segment> const& segments) const;  // the number of blocks

  Device& device_;
  Allocator* outer_ = nullptr;
  mutable Lock lock_;
  std::optional<HeldAtFork> at_fork_;
  Stats stats_;
  std::uint64_t calls_checked_ = 0;  // the allocations and frees when the sums were last checked
  std::uint64_t blocks_checked_ = 0;
};

}  // namespace allocbench

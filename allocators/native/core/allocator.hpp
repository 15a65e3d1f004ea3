// core/allocator.hpp: the interface of every strategy.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/condition.hpp"
#include "core/device.hpp"
#include "core/lock.hpp"
#include "core/options.hpp"
#include "core/stats.hpp"
#include "core/types.hpp"

namespace allocbench {

// What a strategy says about itself, as data beside its code.
struct StrategyInfo {
  std::string_view name;
  std::string_view summary;     // the idea in a sentence
  std::string_view worst_case;  // the waste that it cannot exclude
  std::string_view reference;   // where the algorithm comes from
  std::span<Option const> options = {};
  bool candidate = true;          // may be recommended
  bool keeps_free_blocks = true;  // else external fragmentation does not apply
  // The largest request that an empty device of `capacity` bytes must serve.
  Size (*largest_request)(Size capacity) = [](Size capacity) { return capacity; };
  std::string_view exemption = "";  // why that is less than the capacity
  bool by_stream = false;           // a freed block serves requests of its own stream alone
  // Blocks come from a pool of the device's own, which does not show its segments: in a snapshot
  // each is one, and reserved bytes are more than their sum. Not every device has pools.
  bool from_pool = false;
};

// Public calls lock, check and count; a strategy writes the `do_` functions, which run under
// the lock. Requests of 0 bytes give the null address, and freeing the null address does nothing.
class Allocator {
 public:
  using Seconds = std::chrono::duration<double>;

  // `patience` is how long a request that fails waits for memory that other threads may return.
  explicit Allocator(Device& device, Seconds patience = {})
      : device_(device), patience_(patience) {}
  Allocator(Allocator const&) = delete;
  Allocator& operator=(Allocator const&) = delete;
  virtual ~Allocator();

  // Throws OutOfMemory, or DeviceError when that is due to another failure of the device.
  Address allocate(Size requested, Stream stream = 0);
  Block try_allocate(Size requested, Stream stream = 0);  // size 0 when there is no memory
  // Throws BadFree, and changes nothing, unless `address` is an allocated block of this allocator.
  // Throws DeviceError after the free when the device failed to take memory back.
  void deallocate(Address address, Stream stream = 0);
  Block try_deallocate(Address address, Stream stream = 0);  // size 0 when there is no such block
  // Wholly free segments go back to the device. Throws DeviceError, as a free does.
  void trim();
  void reset_peaks();  // of the statistics, to the bytes now
  void step();         // a training or inference step begins

  std::vector<Segment> snapshot() const;  // in order of address
  void check() const;                     // throws InvariantViolation naming the broken rule
  Size largest_free() const;              // bytes; 0 when no block is free
  Stats stats() const;
  Counters counters() const;
  std::string summary() const;  // what this strategy adds to an out-of-memory message
  std::string describe_failure(Size requested) const;  // the out-of-memory message
  Device& device() const { return device_; }
  virtual StrategyInfo const& info() const = 0;

 protected:
  struct Acquired {
    Address address;  // 0: the device refuses
    Size size;
  };
  // What `inner` gets from the device from now on counts as reserved by this allocator too, and
  // never exceeds its do_room(). `inner` is called only from the `do_` functions of this one.
  // This one has its patience.
  void enclose(Allocator& inner) {
    inner.outer_ = this;
    patience_ = std::max(patience_, inner.patience_);
  }

  Size room() const;           // bytes that may yet be reserved
  Address acquire(Size size);  // a segment from the device, or 0
  // A segment of `wanted` bytes; while the device refuses, of half as many, down to `least`.
  // Sizes are multiples of `unit`, as `least` must be.
  Acquired acquire_between(Size least, Size wanted, Size unit);
  void release(Address segment, Size size);
  Address reserve(Size size);  // addresses from the device, or 0
  void unreserve(Address reservation);
  // Both take `size` bytes in pages of `page` bytes each. All are mapped, or none and it is false.
  bool map(Address first, Size size, Size page);
  void unmap(Address first, Size size, Size page);
  // A pool of the device's own, kept until this allocator goes; throws DeviceError.
  Device::Pool open_pool(Size keep);
  Address acquire_from(Device::Pool pool, Size size, Stream stream);  // a block, or 0
  void release_to(Device::Pool pool, Address block, Stream stream);
  void trim_pool(Device::Pool pool);
  void count_retry();
  Stats const& counted() const { return stats_; }
  Lock& lock() const { return lock_; }  // what the public calls hold

 private:
  virtual Block do_allocate(Size requested, Stream stream) = 0;     // size 0: no memory
  virtual Block do_deallocate(Address address, Stream stream) = 0;  // size 0: not a block of ours
  virtual void do_trim() = 0;
  virtual void do_step() {}
  virtual std::vector<Segment> do_snapshot() const = 0;
  virtual Size do_largest_free() const = 0;
  virtual void do_check() const {}  // the rules that only this strategy knows
  virtual Counters do_counters() const { return {}; }
  virtual std::string do_summary() const { return {}; }  // appended to an out-of-memory message
  virtual bool do_forwards() const { return false; }     // every request, to enclosed allocators
  virtual Size do_room() const { return ~Size{0}; }      // what an enclosed allocator may reserve

  Block served(Block const& block, Size requested);
  Block refused(Size requested, Stream stream);
  Size permitted() const;  // by the allocators around this one
  void count_reserved(Size size);
  void count_unreserved(Size size);
  template <class Call>
  auto counting(Device::Pool pool, Call call);  // the change of what the pool holds
  void throw_failure();                         // of the device, if there was one
  std::vector<Segment> sorted_snapshot() const;

  Device& device_;
  Seconds patience_;
  Allocator* outer_ = nullptr;
  mutable Lock lock_;
  Stats stats_;
  Condition memory_returned_;
};

}  // namespace allocbench

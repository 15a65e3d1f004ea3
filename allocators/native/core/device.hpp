// core/device.hpp: where an allocator gets its segments, pages and driver pools.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/stats.hpp"

namespace allocbench {

// The mapped pages of a reservation. Positions and counts are in granules (the granularity of the
// device) from the start of the reservation. A page consists of one or more granules.
class MappedPages {
 public:
  enum class State : std::uint8_t {
    kMapped,
    kUnreturned,  // unmapped by its owner, but the device failed to free it
  };
  struct Page {
    std::size_t first = 0;
    std::uint32_t count = 0;  // 0: no page
    State state = State::kMapped;
    std::size_t end() const { return first + count; }
  };

  // The first page that overlaps the granules [begin, end); its count is 0 if there is none.
  Page first(std::size_t begin, std::size_t end) const {
    end = std::min(end, granules_.size());
    while (begin < end && granules_[begin].count == 0) ++begin;
    if (begin >= end) return {};
    while (granules_[begin].count == kInside) --begin;
    return {begin, granules_[begin].count, granules_[begin].state};
  }

  void set(Page const& page) {
    if (granules_.size() < page.end()) granules_.resize(std::max(page.end(), 2 * granules_.size()));
    for (std::size_t granule = page.first + 1; granule < page.end(); ++granule)
      granules_[granule].count = kInside;
    granules_[page.first] = {page.count, page.state};
  }
  void erase(Page const& page) {
    for (std::size_t granule = page.first; granule < page.end(); ++granule) granules_[granule] = {};
  }

 private:
  static constexpr std::uint32_t kInside = ~std::uint32_t{0};

  struct Granule {
    std::uint32_t count = 0;  // granules of the page that begins here; kInside: inside a page
    State state = State::kMapped;
  };
  std::vector<Granule> granules_;
};

// Public calls lock, count and check; a device implements the `do_` functions. Threads and
// allocators can share a device. An `owner` identifies the holder of memory for `free_all`.
//
// A real device can fail for reasons other than lack of memory. If it fails to provide memory, the
// call is refused. If it fails to free memory, the memory stays with the device, counts as reserved
// and no longer belongs to its owner; `close` tries again to free it. `take_failure` reports the
// error.
class Device {
 public:
  // Position of an address: its segment (by order of creation, from 0), the byte offset in it, and
  // the size of the segment.
  struct Place {
    std::uint32_t segment;
    Size offset;
    Size size;
  };

  // From `from` bytes to just below `below`.
  struct Capacities {
    Size from;
    Size below;
  };

  enum class CallKind : std::uint8_t { kMalloc, kFree, kMap, kUnmap };

  // A call recorded by `keep_calls`; the address is 0 if the device refused. Pages that are
  // unmapped because their reservation is freed are recorded as unmaps.
  struct Call {
    CallKind kind;
    bool refused;
    Address address;
    Size size;
    double seconds;
  };

  Device() = default;
  Device(Device const&) = delete;
  Device& operator=(Device const&) = delete;
  virtual ~Device() = default;

  // A segment of exactly `size` bytes, or 0 if the device refuses.
  Address allocate(Size size, void const* owner);
  // Throws BadFree unless `segment` is the address of an allocated segment.
  void free(Address segment);

  // Virtual memory. A reservation is an address range without memory, whose size is a multiple of
  // the granularity. Pages of memory are mapped into it, and only these count as reserved bytes.
  // Returns the address of a reservation, or 0 if the device has no addresses left.
  Address reserve(Size size, void const* owner);
  // Maps `size` bytes at `first`, inside one reservation, in pages of `page` bytes. Returns false,
  // and maps nothing, if the device refuses any page. `unmap` must use the same pages.
  bool map(Address first, Size size, Size page);
  void unmap(Address first, Size size, Size page);
  // Frees a reservation and unmaps the pages that are still mapped in it.
  void unreserve(Address reservation);

  // Register a segment, or a reservation with its mapped ranges, at a given address, as if a
  // program had obtained it before. Count no call. Return false if the device cannot do that.
  bool adopt(Address segment, Size size, void const* owner);
  bool adopt_pages(Address reservation, Size size, Size page, std::vector<Segment> const& mapped,
                   void const* owner);

  // While memory is kept, freed memory stays as if the device had failed to free it, and counts as
  // reserved. keep_memory(false) frees it.
  void keep_memory(bool keep);
  bool keeps_memory() const { return keeps_memory_; }

  // Frees all memory of `owner`.
  void free_all(void const* owner);
  // Frees all memory and refuses all later requests. Returns the number of segments, pages and
  // pools that could not be freed; another call tries again.
  std::size_t close();
  bool closed() const { return locked(closed_); }

  // True if there is a failure to take.
  bool failed() const { return failed_.load(std::memory_order_relaxed); }
  // The first failure since the last call, other than lack of memory.
  std::optional<std::string> take_failure();

  // The place of an address inside a segment; throws BadFree if no segment contains it.
  Place locate(Address address) const;

  DeviceStats stats() const { return locked(stats_); }
  void keep_calls(bool keep);      // from now on; discards earlier records
  std::vector<Call> take_calls();  // the calls since the last take_calls, in order
  Size reserved() const { return locked(reserved_); }  // bytes in segments and in mapped pages

  // What decisions ask. A comparison leaves more capacities that give the same answers than a
  // number does: see `same_answers`.
  Size capacity() const;           // in bytes
  Size room() const;               // bytes that can still be reserved
  bool has(Size size) const;       // whether the capacity is at least `size`
  bool has_room(Size size) const;  // whether `size` bytes can still be reserved
  // The capacities on which everything that was asked of the device so far has the same answers,
  // and so the same happens.
  virtual Capacities same_answers() const { return {stated_capacity(), stated_capacity() + 1}; }
  virtual Size stated_capacity() const = 0;  // for messages and checks, which decide nothing
  virtual Size granularity() const = 0;      // bytes: pages and reservations are multiples of it
  virtual bool simulated() const = 0;
  virtual std::string cost_source() const = 0;  // where DeviceStats::seconds comes from

 protected:
  // What is held: a segment, a reservation, or a block of a derived class (PoolDevice).
  enum class Kind : std::uint8_t { kSegment, kReservation, kBlock };
  struct Held {
    Size size;
    std::uint32_t ordinal;
    void const* owner;  // null: freed by its owner, but the device failed to free it
    Kind kind;
    MappedPages pages = {};  // of a reservation
  };
  using Segments = std::map<Address, Held>;

  void fail(std::string what);  // for take_failure
  // For derived classes that have calls of their own; the caller holds the mutex.
  Segments::iterator held(Address segment, Kind kind);
  void hold(Address segment, Size size, void const* owner, Kind kind);
  Segments::iterator free_held(Segments::iterator segment);
  void note(CallKind kind, Address address, Size size, double before);
  // Notes that a capacity from `from` on, or below `below`, gives the same answers.
  void same_from(Size from) const;
  void same_below(Size below) const;
  Capacities noted() const { return {same_from_, same_below_}; }

  mutable std::mutex mutex_;
  Size reserved_ = 0;
  Size padding_ = 0;  // bytes of the device that segments take beyond their sizes
  DeviceStats stats_;
  bool closed_ = false;

 private:
  // Each adds the cost of the call to `seconds`; `reserved` is the value before the call. The
  // functions that free memory return false if the device fails to do so.
  virtual Address do_allocate(Size size, Size reserved, double& seconds) = 0;
  virtual bool do_free(Address segment, Size size, double& seconds) = 0;
  virtual Address do_reserve(Size size, double& seconds) = 0;
  virtual bool do_unreserve(Address reservation, Size size, double& seconds) = 0;
  virtual bool do_map(Address page, Size size, Size reserved, double& seconds) = 0;
  virtual bool do_unmap(Address page, Size size, double& seconds) = 0;
  virtual void do_close() {}
  virtual bool do_adopt(Address, Size) { return false; }  // marks addresses as used

  virtual bool do_free_block(Address, Size, double&) { return false; }
  // Called after the blocks of an owner, or of all owners, have been freed: closes what else a
  // derived class holds for them. Returns how many such things could not be closed.
  virtual std::size_t do_blocks_freed(std::optional<void const*> /*owner*/) { return 0; }

  template <class Value>
  Value locked(Value const& value) const {
    std::scoped_lock const guard(mutex_);
    return value;
  }
  Segments::iterator reservation_around(Address first, Size size);
  bool map_page(Segments::iterator reservation, MappedPages::Page const& page);
  bool unmap_page(Segments::iterator reservation, MappedPages::Page page);
  bool unmapped(Address page, Size size);
  bool free_pages(Segments::iterator reservation, bool unreturned_only = false);

  Segments held_;
  Segments::node_type spare_;  // the last entry that was erased, whose memory the next one takes
  // What each owner held when `free_all` was last called. Thousands of allocators may end one after
  // another; it is made again only if something was obtained in between.
  std::unordered_map<void const*, std::vector<Address>> by_owner_;
  bool indexed_ = false;
  std::size_t pages_ = 0;  // in all reservations
  std::uint32_t obtained_ = 0;
  bool keeps_calls_ = false;
  std::vector<Call> calls_;
  std::atomic<bool> keeps_memory_ = false;
  bool empty_ = false;  // closed with no memory left to free; do_close has run
  mutable std::atomic<Size> same_from_ = 0, same_below_ = ~Size{0};
  std::mutex failure_mutex_;
  std::string failure_;
  std::atomic<bool> failed_ = false;
};

// A pool allocates and frees blocks in stream order and keeps freed memory. All memory of a pool
// counts as reserved. As in Device, public calls lock, count and check.
class PoolDevice : public Device {
 public:
  using PoolHandle = std::uint64_t;

  virtual bool has_driver_pools() const = 0;  // a driver or a GPU may lack them
  // A pool that keeps up to `keep` free bytes when its streams are synchronized, or 0.
  PoolHandle open_pool(Size keep, void const* owner);
  Address allocate_from(PoolHandle pool, Size size, Stream stream);  // 0 if the device refuses
  void free_to(PoolHandle pool, Address block, Stream stream);
  void trim_pool(PoolHandle pool);
  Size held_by(PoolHandle pool) const;  // bytes, allocated and free

 protected:
  // The device took memory from its pools. Returns by how many bytes that changes those reserved.
  Size recount_pools();

 private:
  struct OpenPool {
    void const* owner;  // null: closed by its owner, but the device failed to close it
    Size reserved = 0;
  };
  struct PoolBlock {
    PoolHandle pool;
    Stream stream;  // on which the block is freed
  };

  virtual PoolHandle do_open_pool(Size keep, double& seconds) = 0;
  // `others`: reserved bytes outside of the pool.
  virtual Address do_allocate_from(PoolHandle pool, Size size, Stream stream, Size others,
                                   double& seconds) = 0;
  virtual bool do_free_to(PoolHandle pool, Address block, Size size, Stream stream,
                          double& seconds) = 0;
  virtual void do_trim_pool(PoolHandle pool, double& seconds) = 0;
  virtual Size do_held_by(PoolHandle pool, Size before) = 0;
  virtual bool do_close_pool(PoolHandle pool, double& seconds) = 0;

  bool do_free_block(Address block, Size size, double& seconds) final;
  std::size_t do_blocks_freed(std::optional<void const*> owner) final;  // closes the pools
  void recount(PoolHandle pool);
  void close_pool(PoolHandle pool);

  std::map<PoolHandle, OpenPool> pools_;
  std::map<Address, PoolBlock> blocks_;
};

}  // namespace allocbench

// core/device.hpp: where an allocator gets its segments.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/mapped_pages.hpp"
#include "core/stats.hpp"
#include "core/types.hpp"

namespace allocbench {

// Public calls lock, count and check; a device writes the `do_` functions. Safe to share between
// threads and between allocators.
//
// A real device can fail otherwise than for lack of memory. A call that should have given memory
// is then refused. Memory that should have been given back stays with the device, counts as
// reserved and is offered again by `close`: for its owner it is gone. What happened is told by
// `take_failure`.
class Device {
 public:
  // Where an address lies: the how-manieth segment obtained (from 0), the byte within it, and its
  // size.
  struct Place {
    std::uint32_t segment;
    Size offset;
    Size size;
  };

  enum class CallKind : std::uint8_t { kMalloc, kFree, kMap, kUnmap };

  // One call as `keep_calls` keeps it; the address is 0 where it was refused. What a reservation
  // takes of its pages with it counts as unmaps.
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

  // A segment of exactly `size` bytes, or 0 when the device refuses.
  Address allocate(Size size, void const* owner);
  // Throws BadFree unless `segment` is the address of a segment held.
  void free(Address segment);

  // Virtual memory. A reservation is a segment of addresses, in multiples of the granularity, with
  // no memory behind them until pages are mapped; reserved bytes count the mapped ones alone.
  // The address of a reservation, or 0 when the device has no addresses left.
  Address reserve(Size size, void const* owner);
  // Puts memory behind `size` bytes at `first`, inside one reservation, in pages of `page` bytes
  // each: behind all, or none and it is false when the device refuses one. `unmap` takes pages back
  // as they were mapped.
  bool map(Address first, Size size, Size page);
  void unmap(Address first, Size size, Size page);
  // Gives a reservation back, with the pages still mapped.
  void unreserve(Address reservation);

  // A pool of the device's own, which hands out blocks in the order of the work on streams and
  // keeps what is freed. Reserved bytes count what the pool holds.
  using Pool = std::uint64_t;
  virtual bool has_pools() const { return false; }
  // A pool that keeps up to `keep` free bytes when its streams are waited for, or 0.
  Pool open_pool(Size keep, void const* owner);
  Address allocate_from(Pool pool, Size size, Stream stream);  // 0 when the device refuses
  void free_to(Pool pool, Address block, Stream stream);
  void trim_pool(Pool pool);
  Size held_by(Pool pool) const;  // bytes, allocated and free

  // Takes back whatever `owner` still holds.
  void free_all(void const* owner);
  // Takes back everything, and refuses all requests from then on. Returns how many segments, pages
  // and pools it could not take back; another call tries again.
  std::size_t close();
  bool closed() const;

  // What failed first since the last time of asking, other than for lack of memory.
  std::optional<std::string> take_failure();

  // The place of any address inside a segment held; throws BadFree for another address.
  Place locate(Address address) const;

  DeviceStats stats() const;
  void keep_calls(bool keep);      // from now on; what was kept is forgotten
  std::vector<Call> take_calls();  // those since the last taking, in order
  Size reserved() const;           // bytes in segments and in mapped pages
  Size room() const;               // capacity less reserved bytes

  virtual Size capacity() const = 0;
  virtual Size granularity() const = 0;  // bytes: pages and reservations are multiples of it
  virtual bool simulated() const = 0;
  virtual std::string cost_source() const = 0;  // what stands behind DeviceStats::seconds

 protected:
  void fail(std::string what);  // for take_failure

 private:
  enum class Kind : std::uint8_t { kSegment, kReservation, kPooled };
  struct Held {
    Size size;
    std::uint32_t ordinal;
    void const* owner;  // null: given back by its owner, but not taken by the device
    Kind kind;
    Pool pool = 0;           // of a block
    MappedPages pages = {};  // of a reservation
  };
  struct Holding {
    void const* owner;
    Size reserved = 0;
  };
  using Segments = std::map<Address, Held>;

  // Each adds what the call cost to `seconds`; `reserved` is what is held before it. Those that
  // give back return false when the device does not take it.
  virtual Address do_allocate(Size size, Size reserved, double& seconds) = 0;
  virtual bool do_free(Address segment, Size size, double& seconds) = 0;
  virtual Address do_reserve(Size size, double& seconds) = 0;
  virtual bool do_unreserve(Address reservation, Size size, double& seconds) = 0;
  virtual bool do_map(Address page, Size size, Size reserved, double& seconds) = 0;
  virtual bool do_unmap(Address page, Size size, double& seconds) = 0;
  virtual void do_close() {}

  virtual Pool do_open_pool(Size, double&) { return 0; }
  virtual Address do_allocate_from(Pool, Size, Stream, Size, double&) { return 0; }
  virtual bool do_free_to(Pool, Address, Stream, double&) { return false; }
  virtual void do_trim_pool(Pool, double&) {}
  virtual Size do_held_by(Pool, Size before) { return before; }
  virtual bool do_close_pool(Pool, double&) { return false; }

  Segments::iterator held(Address segment, Kind kind);
  void hold(Address segment, Size size, void const* owner, Kind kind, Pool pool = 0);
  Segments::iterator free_held(Segments::iterator segment, Stream stream = 0);
  Segments::iterator reservation_around(Address first, Size size);
  bool map_page(Segments::iterator reservation, MappedPages::Page const& page);
  bool unmap_page(Segments::iterator reservation, MappedPages::Page page);
  bool free_pages(Segments::iterator reservation);
  void note(CallKind kind, Address address, Size size, double before);
  void recount(Pool pool);
  void close_pool(Pool pool);

  mutable std::mutex mutex_;
  Segments held_;
  std::size_t pages_ = 0;  // in all reservations
  std::map<Pool, Holding> pools_;
  std::uint32_t obtained_ = 0;
  Size reserved_ = 0;
  DeviceStats stats_;
  bool keeps_calls_ = false;
  std::vector<Call> calls_;
  bool closed_ = false;
  bool gone_ = false;  // with nothing left
  std::mutex failure_mutex_;
  std::string failure_;
  std::atomic<bool> failed_ = false;
};

}  // namespace allocbench

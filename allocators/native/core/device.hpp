// core/device.hpp: where an allocator gets its segments.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/stats.hpp"
#include "core/types.hpp"

namespace allocbench {

// Public calls lock, count and check; a device writes the `do_` functions. Safe to share between
// threads and between allocators.
class Device {
 public:
  // Where an address lies: the how-manieth segment obtained (from 0), and the byte within it.
  struct Place {
    std::uint32_t segment;
    Size offset;
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
  // Puts memory behind `size` bytes at `page`, inside one reservation; false when the device
  // refuses. `unmap` takes a page back as it was mapped.
  bool map(Address page, Size size);
  void unmap(Address page, Size size);
  // Gives a reservation back, with the pages still mapped.
  void unreserve(Address reservation);

  // Takes back whatever `owner` still holds.
  void free_all(void const* owner);

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

 private:
  struct Held {
    Size size;
    std::uint32_t ordinal;
    void const* owner;
    bool reservation;
  };
  using Segments = std::map<Address, Held>;
  using Pages = std::map<Address, Size>;

  // Each adds what the call cost to `seconds`; `reserved` is what is held before it.
  virtual Address do_allocate(Size size, Size reserved, double& seconds) = 0;
  virtual void do_free(Address segment, Size size, double& seconds) = 0;
  virtual Address do_reserve(Size size, double& seconds) = 0;
  virtual void do_unreserve(Address reservation, Size size, double& seconds) = 0;
  virtual bool do_map(Address page, Size size, Size reserved, double& seconds) = 0;
  virtual void do_unmap(Address page, Size size, double& seconds) = 0;

  Segments::iterator held(Address segment, bool reservation);
  void hold(Address segment, Size size, void const* owner, bool reservation);
  void free_held(Segments::iterator segment);
  void note(CallKind kind, Address address, Size size, double before);
  Pages::iterator unmap(Pages::iterator page);

  mutable std::mutex mutex_;
  Segments held_;
  Pages pages_;
  std::uint32_t obtained_ = 0;
  Size reserved_ = 0;
  DeviceStats stats_;
  bool keeps_calls_ = false;
  std::vector<Call> calls_;
};

}  // namespace allocbench

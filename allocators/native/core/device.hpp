// core/device.hpp: where an allocator gets its segments.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

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

  Device() = default;
  Device(Device const&) = delete;
  Device& operator=(Device const&) = delete;
  virtual ~Device() = default;

  // A segment of exactly `size` bytes, or 0 when the device refuses.
  Address allocate(Size size, void const* owner);
  // Throws BadFree unless `segment` is the address of a segment held.
  void free(Address segment);
  // Takes back whatever `owner` still holds.
  void free_all(void const* owner);

  // The place of any address inside a segment held; throws BadFree for another address.
  Place locate(Address address) const;

  DeviceStats stats() const;
  Size reserved() const;  // bytes in segments held
  Size room() const;      // capacity less reserved bytes

  virtual Size capacity() const = 0;
  virtual bool simulated() const = 0;
  virtual std::string cost_source() const = 0;  // what stands behind DeviceStats::seconds

 private:
  struct Held {
    Size size;
    std::uint32_t ordinal;
    void const* owner;
  };

  // Both add what the call cost to `seconds`.
  virtual Address do_allocate(Size size, Size reserved, double& seconds) = 0;
  virtual void do_free(Address segment, Size size, double& seconds) = 0;

  void free_held(std::map<Address, Held>::iterator segment);

  mutable std::mutex mutex_;
  std::map<Address, Held> held_;
  std::uint32_t obtained_ = 0;
  Size reserved_ = 0;
  DeviceStats stats_;
};

}  // namespace allocbench

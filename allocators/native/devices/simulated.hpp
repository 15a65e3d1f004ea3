// devices/simulated.hpp: a GPU's memory as a model: capacity, addresses, costs and faults.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/device.hpp"
#include "gpu/driver_pool.hpp"
#include "gpu/pages.hpp"

namespace allocbench {

// Points (bytes, seconds) of the cost of one device call by size. The cost is interpolated linearly
// between the points and constant outside of them.
using CostCurve = std::vector<std::pair<double, double>>;

// What has a cost. A map is cuMemCreate, cuMemMap and cuMemSetAccess together, for one page. A pool
// grows and shrinks by pages of DriverPool::kPage, in addition to the call that makes it do so.
enum class Cost : std::uint8_t {
  kMalloc,
  kFree,
  kMap,
  kUnmap,
  kPoolMalloc,
  kPoolFree,
  kPoolGrow,
  kPoolShrink,
};
inline constexpr std::size_t kCosts = 8;

struct CostModel {
  std::string source = "none";  // "estimate", or the GPU on which it was measured
  std::array<CostCurve, kCosts> curves = {};
};

// Injected refusals of mallocs and maps, to test how an allocator handles them.
struct Faults {
  std::uint64_t fail_call = 0;                         // the call to refuse, from 1; 0: no call
  Size fail_above = std::numeric_limits<Size>::max();  // refuse all calls for more bytes
  double fail_rate = 0;                                // the probability to refuse a call
  std::uint64_t seed = 0;
};

// Whether later segments are at lower or at higher addresses. cudaMalloc mostly returns decreasing
// addresses on Linux and increasing addresses on Windows.
enum class AddressOrder : std::uint8_t { kDown, kUp };

// Each segment begins at a multiple of `alignment`: at the highest one at which it ends below all
// earlier segments, or, with kUp, at the lowest one above them. Addresses are never reused, so they
// only decrease or only increase, and every run is the same. A reservation gets its addresses in
// the same way, at no cost. The bytes of segments, of mapped pages and of the pages of pools count
// against the capacity. With a page size, those of segments count as whole pages: see Pages. All
// work on the device has ended, so what was freed to a pool on one stream may serve all others.
class SimulatedDevice : public PoolDevice {
 public:
  static constexpr Size kDefaultAlignment = 2 * kMiB;

  // `page`: the page size of segments; 0: they are not rounded. Throws SpecError for a capacity of
  // 0 or of 2^62 bytes or more, an alignment or a page that is not a power of two or exceeds 1 GiB,
  // a page below 1 KiB, a rate outside [0, 1], or a cost curve whose sizes do not increase or that
  // contains a negative or infinite number.
  SimulatedDevice(Size capacity, Size alignment, CostModel costs, Faults faults,
                  AddressOrder order = AddressOrder::kDown, Size page = 0);

  Size capacity() const override { return capacity_; }
  Size granularity() const override { return kPage; }
  bool simulated() const override { return true; }
  bool has_driver_pools() const override { return true; }
  std::string cost_source() const override { return costs_.source; }

 protected:
  Address do_allocate(Size size, Size reserved, double& seconds) override;
  bool do_free(Address segment, Size size, double& seconds) override;
  Address do_reserve(Size size, double& seconds) override;
  bool do_unreserve(Address reservation, Size size, double& seconds) override;
  bool do_map(Address page, Size size, Size reserved, double& seconds) override;
  bool do_unmap(Address page, Size size, double& seconds) override;
  bool do_adopt(Address address, Size size) override;

 private:
  PoolHandle do_open_pool(Size keep, double& seconds) override;
  Address do_allocate_from(PoolHandle pool, Size size, Stream stream, Size others,
                           double& seconds) override;
  bool do_free_to(PoolHandle pool, Address block, Size size, Stream stream,
                  double& seconds) override;
  void do_trim_pool(PoolHandle pool, double& seconds) override;
  Size do_held_by(PoolHandle pool, Size before) override;
  bool do_close_pool(PoolHandle pool, double& seconds) override;

  void charge(Cost cost, Size size, double& seconds);
  Address place(Size size, Size alignment);
  bool fault(Size size);
  Size free_bytes(Size reserved) const;
  bool reclaim(Size size, Size& reserved, double& seconds);
  void shrink(DriverPool& pool, double& seconds);

  Size capacity_;
  Size alignment_;
  AddressOrder order_;
  CostModel costs_;
  std::array<std::size_t, kCosts> first_;  // point of each curve among all points
  Faults faults_;
  std::mt19937_64 random_;
  std::uint64_t calls_ = 0;
  Address low_;  // all addresses returned so far are in [low_, high_)
  Address high_;
  std::optional<Pages> pages_;
  std::map<PoolHandle, DriverPool> pools_;
  PoolHandle last_pool_ = 0;
};

// A call returns the address that it returned in the recording. If the next recorded calls return
// memory to the device, the recorded device must have refused a request; so a request that comes
// instead of them is refused as well, until that memory has been returned. A call that is not in
// the recording, or whose address is still in use in the replay, is served as on a simulated
// device, at an unused address.
class RecordedDevice final : public SimulatedDevice {
 public:
  // `calls` are the successful calls of the recording, in order; their `seconds` are not used.
  RecordedDevice(Size capacity, std::vector<Call> calls)
      : SimulatedDevice(capacity, kDefaultAlignment, {}, {}) {
    for (Call const& call : calls) {
      expected_.push_back({call, call.size});
      SimulatedDevice::do_adopt(call.address, call.size);
    }
  }

  bool has_driver_pools() const override { return false; }  // a recording shows nothing of them

 private:
  static bool returns_memory(Device::CallKind kind) {
    return kind == Device::CallKind::kFree || kind == Device::CallKind::kUnmap;
  }

  Address do_allocate(Size size, Size reserved, double& seconds) override {
    if (refuses()) return 0;
    for (std::size_t index = next_; index < expected_.size(); ++index) {
      auto& [call, left] = expected_[index];
      if (call.kind != CallKind::kMalloc || call.size != size || left == 0) continue;
      left = 0;
      if (overlaps(call.address, size)) break;
      held_[call.address] = size;
      return call.address;
    }
    return SimulatedDevice::do_allocate(size, reserved, seconds);
  }

  bool do_free(Address segment, Size size, double&) override {
    held_.erase(segment);
    note(CallKind::kFree, segment, size);
    return true;
  }

  // Recordings contain no reservations. The first map in a new reservation is at its start, so the
  // next such map gives the address.
  Address do_reserve(Size size, double& seconds) override {
    skip_replayed();
    for (std::size_t index = next_; index < expected_.size(); ++index)
      if (auto const& [call, left] = expected_[index];
          call.kind == CallKind::kMap && left == call.size && !held_.contains(call.address)) {
        held_[call.address] = 0;
        return call.address;
      }
    return SimulatedDevice::do_reserve(size, seconds);
  }

  bool do_map(Address page, Size size, Size, double&) override {
    if (refuses()) return false;
    note(CallKind::kMap, page, size);
    return true;
  }

  bool do_unmap(Address page, Size size, double&) override {
    note(CallKind::kUnmap, page, size);
    return true;
  }

  bool do_unreserve(Address reservation, Size, double&) override {
    held_.erase(reservation);
    return true;
  }

  bool do_adopt(Address address, Size size) override {
    held_[address] = size;
    return SimulatedDevice::do_adopt(address, size);
  }

  struct Expected {
    Call call;
    Size left;  // bytes not yet replayed: one recorded call may map or unmap several pages
  };

  // True if the recorded device refused a request here, that is, if memory was returned next. If no
  // memory has been returned since the last refusal, the replay has left the recording; the
  // recorded frees are then skipped.
  bool refuses() {
    skip_replayed();
    Size pending = 0;
    std::size_t end = next_;
    for (; end < expected_.size() && returns_memory(expected_[end].call.kind); ++end)
      pending += expected_[end].left;
    if (pending == 0 || pending == pending_at_refusal_) {
      next_ = end;
      pending_at_refusal_ = 0;
      return false;
    }
    pending_at_refusal_ = pending;
    return true;
  }

  bool overlaps(Address address, Size size) const {
    auto const above = held_.lower_bound(address);
    if (above != held_.end() && above->first < address + size) return true;
    if (above == held_.begin()) return false;
    auto const& [below, bytes] = *std::prev(above);
    return below + bytes > address;
  }

  void skip_replayed() {
    while (next_ < expected_.size() && expected_[next_].left == 0) ++next_;
  }

  // Marks the recorded call that covers this call, if there is one, as replayed.
  void note(CallKind kind, Address address, Size size) {
    for (std::size_t index = next_; index < expected_.size(); ++index) {
      auto& [call, left] = expected_[index];
      if (left == 0 || call.kind != kind || address < call.address ||
          address + size > call.address + call.size)
        continue;
      left -= std::min(left, size);
      return;
    }
  }

  std::vector<Expected> expected_;
  std::map<Address, Size> held_;  // segments with their sizes; reservations with size 0
  std::size_t next_ = 0;
  Size pending_at_refusal_ = 0;  // bytes still to be returned at the last refusal
};

}  // namespace allocbench

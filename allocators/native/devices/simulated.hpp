// devices/simulated.hpp: a GPU's memory as a model: capacity, addresses, costs and faults.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/pool_device.hpp"
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

}  // namespace allocbench

// devices/simulated.hpp: a GPU's memory as a model: capacity, addresses, costs and faults.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/device.hpp"

namespace allocbench {

// Points (bytes, seconds) of the cost of one device call by size. The cost is interpolated linearly
// between the points and constant outside of them.
using CostCurve = std::vector<std::pair<double, double>>;

struct CostModel {
  std::string source = "none";  // "estimate", or the GPU on which it was measured
  CostCurve malloc;
  CostCurve free;
  CostCurve map;  // of a page: cuMemCreate, cuMemMap and cuMemSetAccess together
  CostCurve unmap;
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
// the same way, at no cost. The bytes of segments and of mapped pages count against the capacity,
// without rounding.
class SimulatedDevice : public Device {
 public:
  static constexpr Size kDefaultAlignment = 2 * kMiB;
  static constexpr Size kGranularity = 2 * kMiB;

  // Throws SpecError for a capacity of 0 or of 2^62 bytes or more, an alignment that is not a power
  // of two or exceeds 1 GiB, a rate outside [0, 1], or a cost curve whose sizes do not increase or
  // that contains a negative or infinite number.
  SimulatedDevice(Size capacity, Size alignment, CostModel costs, Faults faults,
                  AddressOrder order = AddressOrder::kDown);

  Size capacity() const override { return capacity_; }
  Size granularity() const override { return kGranularity; }
  bool simulated() const override { return true; }
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
  // Adds the cost of a call to `seconds`. `first`: index of the curve's first point among all.
  void charge(CostCurve const& curve, std::size_t first, Size size, double& seconds);
  Address place(Size size, Size alignment);
  bool fault(Size size);

  Size capacity_;
  Size alignment_;
  AddressOrder order_;
  CostModel costs_;
  std::size_t free_, map_, unmap_;  // the first points of these curves among all points
  Faults faults_;
  std::mt19937_64 random_;
  std::uint64_t calls_ = 0;
  Address low_;  // all addresses returned so far are in [low_, high_)
  Address high_;
};

}  // namespace allocbench

// devices/simulated.hpp: a GPU's memory as numbers alone: a capacity, addresses, costs, faults.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/device.hpp"

namespace allocbench {

// Seconds of one device call by size in bytes: straight lines between the points, level outside.
using CostCurve = std::vector<std::pair<double, double>>;

struct CostModel {
  std::string source = "none";  // "estimate", or the GPU that it was measured on
  CostCurve malloc;
  CostCurve free;
  CostCurve map;  // a page: memory made, mapped and opened to access
  CostCurve unmap;
};

// Refusals on purpose, for tests of what an allocator does then.
struct Faults {
  std::uint64_t fail_call = 0;  // refuse the k-th malloc or map, counted from 1
  Size fail_above = std::numeric_limits<Size>::max();  // refuse every larger one
  double fail_rate = 0;                                // refuse at random with this probability
  std::uint64_t seed = 0;
};

// Where a later segment lies: cudaMalloc mostly goes down on Linux, and up on Windows.
enum class AddressOrder : std::uint8_t { kDown, kUp };

// Placement: every segment begins at the last multiple of `alignment` where it ends below all the
// segments before it, or at the first one above them all; addresses are never used again. So
// addresses only fall, or only grow, and a run is the same each time. A reservation takes addresses
// in the same way, at no cost. Capacity counts the bytes of the segments held and of the pages
// mapped, without rounding.
class SimulatedDevice : public Device {
 public:
  static constexpr Size kDefaultAlignment = 2 * kMiB;
  static constexpr Size kGranularity = 2 * kMiB;

  // Throws SpecError for a capacity of 0 or of 2^62 bytes or more, an alignment that is no power
  // of two, a rate outside [0, 1] or a cost curve whose sizes do not grow.
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
  Address place(Size size, Size alignment);
  bool fault(Size size);

  Size capacity_;
  Size alignment_;
  AddressOrder order_;
  CostModel costs_;
  Faults faults_;
  std::mt19937_64 random_;
  std::uint64_t calls_ = 0;
  Address low_;  // all addresses handed out lie from here to before `high_`
  Address high_;
};

}  // namespace allocbench

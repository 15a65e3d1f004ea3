// devices/simulated.cpp: a GPU's memory as a model: capacity, addresses, costs and faults.
// SPDX-License-Identifier: Apache-2.0
#include "devices/simulated.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace allocbench {
namespace {

constexpr Address kBase = Address{1} << 40;
constexpr Address kTop = Address{1} << 52;  // exact as a double, as are all integers below it
constexpr Address kEnd = Address{1} << 63;
constexpr Size kLargestCapacity = Size{1} << 62;

void check_curve(CostCurve const& curve) {
  auto const not_increasing = [](auto const& a, auto const& b) { return a.first >= b.first; };
  if (std::ranges::adjacent_find(curve, not_increasing) != curve.end())
    throw SpecError("simulated device: the sizes of a cost curve must increase");
  for (auto const& [bytes, seconds] : curve)
    if (!(bytes >= 0 && seconds >= 0 && std::isfinite(bytes) && std::isfinite(seconds)))
      throw SpecError(
          "simulated device: the numbers of a cost curve must be finite and not negative");
}

}  // namespace

SimulatedDevice::SimulatedDevice(Size capacity, Size alignment, CostModel costs, Faults faults,
                                 AddressOrder order)
    : capacity_(capacity),
      alignment_(alignment),
      order_(order),
      costs_(std::move(costs)),
      free_(costs_.malloc.size()),
      map_(free_ + costs_.free.size()),
      unmap_(map_ + costs_.map.size()),
      faults_(faults),
      random_(faults.seed),
      low_(order == AddressOrder::kUp ? kBase : kTop),
      high_(low_) {
  if (capacity == 0 || capacity >= kLargestCapacity)
    throw SpecError("simulated device: capacity " + std::to_string(capacity) +
                    " must be at least 1 byte and below 2^62 bytes");
  if (!std::has_single_bit(alignment) || alignment > kGiB)
    throw SpecError("simulated device: alignment " + std::to_string(alignment) +
                    " must be a power of two of at most 1 GiB");
  if (!(faults.fail_rate >= 0 && faults.fail_rate <= 1))
    throw SpecError("simulated device: fail_rate " + std::to_string(faults.fail_rate) +
                    " must be from 0 to 1");
  check_curve(costs_.malloc);
  check_curve(costs_.free);
  check_curve(costs_.map);
  check_curve(costs_.unmap);
  stats_.calls_at_points.resize(unmap_ + costs_.unmap.size());
}

void SimulatedDevice::charge(CostCurve const& curve, std::size_t first, Size size,
                             double& seconds) {
  if (curve.empty()) return;
  auto const bytes = static_cast<double>(size);
  auto const above = std::ranges::upper_bound(curve, bytes, {}, &CostCurve::value_type::first);
  double* const calls = stats_.calls_at_points.data() + first + std::distance(curve.begin(), above);
  if (above == curve.begin()) {
    seconds += above->second;
    ++calls[0];
    return;
  }
  auto const& [x0, y0] = *std::prev(above);
  if (above == curve.end()) {
    seconds += y0;
    ++calls[-1];
    return;
  }
  auto const& [x1, y1] = *above;
  seconds += y0 + (y1 - y0) * (bytes - x0) / (x1 - x0);
  double const share = (bytes - x0) / (x1 - x0);
  calls[-1] += 1 - share;
  calls[0] += share;
}

Address SimulatedDevice::do_allocate(Size size, Size reserved, double& seconds) {
  charge(costs_.malloc, 0, size, seconds);
  if (fault(size) || size == 0 || size > capacity_ - reserved) return 0;
  return place(size, alignment_);
}

bool SimulatedDevice::do_free(Address, Size size, double& seconds) {
  charge(costs_.free, free_, size, seconds);
  return true;
}

Address SimulatedDevice::do_reserve(Size size, double&) {
  return place(size, std::max(alignment_, kGranularity));
}

bool SimulatedDevice::do_unreserve(Address, Size, double&) { return true; }

bool SimulatedDevice::do_map(Address, Size size, Size reserved, double& seconds) {
  charge(costs_.map, map_, size, seconds);
  return !fault(size) && size <= capacity_ - reserved;
}

bool SimulatedDevice::do_unmap(Address, Size size, double& seconds) {
  charge(costs_.unmap, unmap_, size, seconds);
  return true;
}

bool SimulatedDevice::do_adopt(Address address, Size size) {
  low_ = std::min(low_, address);
  high_ = std::max(high_, address + size);
  return true;
}

// The address of a new segment, or 0 if no addresses are left. With kDown, uses the addresses above
// once those below are used up.
Address SimulatedDevice::place(Size size, Size alignment) {
  if (order_ == AddressOrder::kDown && low_ >= size && low_ - size >= kBase)
    return low_ = round_down(low_ - size, alignment);
  Address const start = round_up(high_, alignment);
  if (start > kEnd || size > kEnd - start) return 0;
  high_ = start + size;
  return start;
}

bool SimulatedDevice::fault(Size size) {
  ++calls_;
  bool const at_random =
      faults_.fail_rate > 0 && std::generate_canonical<double, 53>(random_) < faults_.fail_rate;
  return at_random || calls_ == faults_.fail_call || size > faults_.fail_above;
}

}  // namespace allocbench

// devices/simulated.cpp: a GPU's memory as a model: capacity, addresses, costs and faults.
// SPDX-License-Identifier: Apache-2.0
#include "devices/simulated.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>

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

bool all_ended(Stream) { return true; }

}  // namespace

SimulatedDevice::SimulatedDevice(Size capacity, Size alignment, CostModel costs, Faults faults,
                                 AddressOrder order, Size page)
    : capacity_(capacity),
      alignment_(alignment),
      order_(order),
      costs_(std::move(costs)),
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
  if (page != 0 && (!std::has_single_bit(page) || page < kKiB || page > kGiB))
    throw SpecError("simulated device: page " + std::to_string(page) +
                    " must be 0 or a power of two from 1 KiB to 1 GiB");
  if (page != 0) pages_.emplace(page);
  std::size_t points = 0;
  for (std::size_t cost = 0; cost < kCosts; ++cost) {
    check_curve(costs_.curves[cost]);
    first_[cost] = std::exchange(points, points + costs_.curves[cost].size());
  }
  stats_.calls_at_points.resize(points);
}

void SimulatedDevice::charge(Cost cost, Size size, double& seconds) {
  auto const index = static_cast<std::size_t>(cost);
  CostCurve const& curve = costs_.curves[index];
  if (curve.empty()) return;
  auto const bytes = static_cast<double>(size);
  auto const above = std::ranges::upper_bound(curve, bytes, {}, &CostCurve::value_type::first);
  double* const calls =
      stats_.calls_at_points.data() + first_[index] + std::distance(curve.begin(), above);
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
  charge(Cost::kMalloc, size, seconds);
  if (fault(size) || size == 0) return 0;
  if (!pages_) return reclaim(size, reserved, seconds) ? place(size, alignment_) : 0;
  Size taken = 0;
  Address const segment = pages_->allocate(size, [&](Size bytes) {
    taken = bytes;
    return reclaim(bytes, reserved, seconds) ? place(bytes, std::max(alignment_, kPage)) : 0;
  });
  if (segment != 0) padding_ += taken - size;
  return segment;
}

bool SimulatedDevice::do_free(Address segment, Size size, double& seconds) {
  charge(Cost::kFree, size, seconds);
  Size given = 0;
  if (pages_ && pages_->release(segment, [&](Range pages) { given = pages.size; }))
    padding_ += size - given;
  return true;
}

Address SimulatedDevice::do_reserve(Size size, double&) {
  return place(size, std::max(alignment_, granularity()));
}

bool SimulatedDevice::do_unreserve(Address, Size, double&) { return true; }

bool SimulatedDevice::do_map(Address, Size size, Size reserved, double& seconds) {
  charge(Cost::kMap, size, seconds);
  return !fault(size) && size <= free_bytes(reserved);
}

bool SimulatedDevice::do_unmap(Address, Size size, double& seconds) {
  charge(Cost::kUnmap, size, seconds);
  return true;
}

bool SimulatedDevice::do_adopt(Address address, Size size) {
  low_ = std::min(low_, address);
  high_ = std::max(high_, address + size);
  return true;
}

// A trace has no synchronizations, at which a pool would return what exceeds the bytes to keep.
PoolDevice::PoolHandle SimulatedDevice::do_open_pool(Size, double&) {
  // More addresses than memory: a block may find no range that is large enough although enough
  // memory is free.
  Size const addresses = round_up(4 * std::min(capacity_, kEnd / 16), DriverPool::kPage);
  Address const begin = place(addresses, std::max(alignment_, granularity()));
  if (begin == 0) return 0;
  pools_[++last_pool_].open(begin, addresses);
  return last_pool_;
}

Address SimulatedDevice::do_allocate_from(PoolHandle pool, Size size, Stream stream, Size others,
                                          double& seconds) {
  charge(Cost::kPoolMalloc, size, seconds);
  if (fault(size) || size == 0 || size > free_bytes(others)) return 0;
  DriverPool& model = pools_.at(pool);
  return model.allocate(size, stream, all_ended, [&] {
    if (DriverPool::kPage > free_bytes(others + model.reserved().current)) return false;
    charge(Cost::kPoolGrow, DriverPool::kPage, seconds);
    return true;
  });
}

bool SimulatedDevice::do_free_to(PoolHandle pool, Address block, Size size, Stream stream,
                                 double& seconds) {
  charge(Cost::kPoolFree, size, seconds);
  pools_.at(pool).release(block, size, stream);
  return true;
}

void SimulatedDevice::do_trim_pool(PoolHandle pool, double& seconds) {
  shrink(pools_.at(pool), seconds);
}

Size SimulatedDevice::do_held_by(PoolHandle pool, Size) {
  return pools_.at(pool).reserved().current;
}

bool SimulatedDevice::do_close_pool(PoolHandle pool, double&) { return pools_.erase(pool) != 0; }

Size SimulatedDevice::free_bytes(Size reserved) const {
  return capacity_ - std::min(capacity_, reserved + padding_);
}

// Whether there is room for `size` bytes, after the pools gave up what is free if nothing else
// suffices, as the driver does for cudaMalloc.
bool SimulatedDevice::reclaim(Size size, Size& reserved, double& seconds) {
  if (size <= free_bytes(reserved)) return true;
  for (auto& [handle, pool] : pools_) shrink(pool, seconds);
  reserved -= recount_pools();
  return size <= free_bytes(reserved);
}

void SimulatedDevice::shrink(DriverPool& pool, double& seconds) {
  pool.settle(all_ended);
  Size const freed = pool.shrink(0);
  for (Size page = 0; page < freed; page += DriverPool::kPage)
    charge(Cost::kPoolShrink, DriverPool::kPage, seconds);
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

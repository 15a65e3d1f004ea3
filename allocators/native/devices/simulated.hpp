// devices/simulated.hpp: a GPU's memory as a model: capacity, addresses, costs and faults.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
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
#include "core/errors.hpp"
#include "core/text.hpp"
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
                  AddressOrder order = AddressOrder::kDown, Size page = 0)
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

  Size stated_capacity() const override { return capacity_; }
  // The sizes of reservations may grow with the capacity, by which addresses must not be used up.
  Capacities same_answers() const override {
    std::scoped_lock const guard(mutex_);
    auto const [from, below] = noted();
    Size const left = order_ == AddressOrder::kUp ? kEnd - high_ : low_ - std::min(low_, kBase);
    Size const growth = placed_ == 0 ? kLargestCapacity : left / placed_;
    Size const most =
        growth < kLargestCapacity / capacity_ ? capacity_ * (growth + 1) : kLargestCapacity;
    return {std::min(from, capacity_), std::max(std::min(below, most), capacity_ + 1)};
  }
  Size granularity() const override { return kPage; }
  bool simulated() const override { return true; }
  bool has_driver_pools() const override { return true; }
  std::string cost_source() const override { return costs_.source; }

 protected:
  Address do_allocate(Size size, Size reserved, double& seconds) override {
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

  bool do_free(Address segment, Size size, double& seconds) override {
    charge(Cost::kFree, size, seconds);
    Size given = 0;
    if (pages_ && pages_->release(segment, [&](Range pages) { given = pages.size; }))
      padding_ += size - given;
    return true;
  }

  Address do_reserve(Size size, double&) override {
    return place(size, std::max(alignment_, granularity()));
  }

  bool do_unreserve(Address, Size, double&) override { return true; }

  bool do_map(Address, Size size, Size reserved, double& seconds) override {
    charge(Cost::kMap, size, seconds);
    return !fault(size) && fits(size, reserved);
  }

  bool do_unmap(Address, Size size, double& seconds) override {
    charge(Cost::kUnmap, size, seconds);
    return true;
  }

  bool do_adopt(Address address, Size size) override {
    low_ = std::min(low_, address);
    high_ = std::max(high_, address + size);
    return true;
  }

 private:
  static constexpr Address kBase = Address{1} << 40;
  static constexpr Address kTop = Address{1}
                                  << 52;  // exact as a double, as are all integers below it
  static constexpr Address kEnd = Address{1} << 63;
  static constexpr Size kLargestCapacity = Size{1} << 62;
  static void check_curve(CostCurve const& curve) {
    auto const not_increasing = [](auto const& a, auto const& b) { return a.first >= b.first; };
    if (std::ranges::adjacent_find(curve, not_increasing) != curve.end())
      throw SpecError("simulated device: the sizes of a cost curve must increase");
    for (auto const& [bytes, seconds] : curve)
      if (!(bytes >= 0 && seconds >= 0 && std::isfinite(bytes) && std::isfinite(seconds)))
        throw SpecError(
            "simulated device: the numbers of a cost curve must be finite and not negative");
  }

  static bool all_ended(Stream) { return true; }

  // A trace has no synchronizations, at which a pool would return what exceeds the bytes to keep.
  PoolHandle do_open_pool(Size, double&) override {
    // More addresses than memory: a block may find no range that is large enough although enough
    // memory is free.
    Size const addresses = round_up(4 * std::min(capacity_, kEnd / 16), DriverPool::kPage);
    Address const begin = place(addresses, std::max(alignment_, granularity()));
    if (begin == 0) return 0;
    pools_[++last_pool_].open(begin, addresses);
    return last_pool_;
  }

  Address do_allocate_from(PoolHandle pool, Size size, Stream stream, Size others,
                           double& seconds) override {
    charge(Cost::kPoolMalloc, size, seconds);
    if (fault(size) || size == 0 || !fits(size, others)) return 0;
    DriverPool& model = pools_.at(pool);
    Address const block = model.allocate(size, stream, all_ended, [&] {
      if (!fits(DriverPool::kPage, others + model.reserved().current)) return false;
      charge(Cost::kPoolGrow, DriverPool::kPage, seconds);
      return true;
    });
    // With so many addresses, those above all blocks are more than any others that are free.
    same_from(model.extent() / 2 + 1);
    return block;
  }

  bool do_free_to(PoolHandle pool, Address block, Size size, Stream stream,
                  double& seconds) override {
    charge(Cost::kPoolFree, size, seconds);
    pools_.at(pool).release(block, size, stream);
    return true;
  }

  void do_trim_pool(PoolHandle pool, double& seconds) override { shrink(pools_.at(pool), seconds); }

  Size do_held_by(PoolHandle pool, Size) override { return pools_.at(pool).reserved().current; }

  bool do_close_pool(PoolHandle pool, double&) override { return pools_.erase(pool) != 0; }

  void charge(Cost cost, Size size, double& seconds) {
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

  // The address of a new segment, or 0 if no addresses are left. With kDown, uses the addresses
  // above once those below are used up.
  Address place(Size size, Size alignment) {
    placed_ = sum(placed_, size);
    if (order_ == AddressOrder::kDown && low_ >= size && low_ - size >= kBase)
      return low_ = round_down(low_ - size, alignment);
    Address const start = round_up(high_, alignment);
    if (start > kEnd || size > kEnd - start) return 0;
    high_ = start + size;
    return start;
  }

  bool fault(Size size) {
    ++calls_;
    bool const at_random =
        faults_.fail_rate > 0 && std::generate_canonical<double, 53>(random_) < faults_.fail_rate;
    return at_random || calls_ == faults_.fail_call || size > faults_.fail_above;
  }

  bool fits(Size size, Size reserved) const { return has(sum(reserved + padding_, size)); }

  // Whether there is room for `size` bytes, after the pools gave up what is free if nothing else
  // suffices, as the driver does for cudaMalloc.
  bool reclaim(Size size, Size& reserved, double& seconds) {
    if (fits(size, reserved)) return true;
    for (auto& [handle, pool] : pools_) shrink(pool, seconds);
    reserved -= recount_pools();
    return fits(size, reserved);
  }

  void shrink(DriverPool& pool, double& seconds) {
    pool.settle(all_ended);
    Size const freed = pool.shrink(0);
    for (Size page = 0; page < freed; page += DriverPool::kPage)
      charge(Cost::kPoolShrink, DriverPool::kPage, seconds);
  }

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
  Size placed_ = 0;  // bytes of all ranges of addresses
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

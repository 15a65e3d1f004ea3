// devices/recorded.cpp: a simulated device that repeats the answers of a recorded device.
// SPDX-License-Identifier: Apache-2.0
#include "devices/recorded.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace allocbench {
namespace {

bool returns_memory(Device::CallKind kind) {
  return kind == Device::CallKind::kFree || kind == Device::CallKind::kUnmap;
}

}  // namespace

RecordedDevice::RecordedDevice(Size capacity, std::vector<Call> calls)
    : SimulatedDevice(capacity, kDefaultAlignment, {}, {}) {
  for (Call const& call : calls) {
    expected_.push_back({call, call.size});
    SimulatedDevice::do_adopt(call.address, call.size);
  }
}

void RecordedDevice::skip_replayed() {
  while (next_ < expected_.size() && expected_[next_].left == 0) ++next_;
}

// True if the recorded device refused a request here, that is, if memory was returned next. If no
// memory has been returned since the last refusal, the replay has left the recording; the recorded
// frees are then skipped.
bool RecordedDevice::refuses() {
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

Address RecordedDevice::do_allocate(Size size, Size reserved, double& seconds) {
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

bool RecordedDevice::overlaps(Address address, Size size) const {
  auto const above = held_.lower_bound(address);
  if (above != held_.end() && above->first < address + size) return true;
  if (above == held_.begin()) return false;
  auto const& [below, bytes] = *std::prev(above);
  return below + bytes > address;
}

bool RecordedDevice::do_adopt(Address address, Size size) {
  held_[address] = size;
  return SimulatedDevice::do_adopt(address, size);
}

// Marks the recorded call that covers this call, if there is one, as replayed.
void RecordedDevice::note(CallKind kind, Address address, Size size) {
  for (std::size_t index = next_; index < expected_.size(); ++index) {
    auto& [call, left] = expected_[index];
    if (left == 0 || call.kind != kind || address < call.address ||
        address + size > call.address + call.size)
      continue;
    left -= std::min(left, size);
    return;
  }
}

bool RecordedDevice::do_free(Address segment, Size size, double&) {
  held_.erase(segment);
  note(CallKind::kFree, segment, size);
  return true;
}

bool RecordedDevice::do_unmap(Address page, Size size, double&) {
  note(CallKind::kUnmap, page, size);
  return true;
}

// Recordings contain no reservations. The first map in a new reservation is at its start, so the
// next such map gives the address.
Address RecordedDevice::do_reserve(Size size, double& seconds) {
  skip_replayed();
  for (std::size_t index = next_; index < expected_.size(); ++index)
    if (auto const& [call, left] = expected_[index];
        call.kind == CallKind::kMap && left == call.size && !held_.contains(call.address)) {
      held_[call.address] = 0;
      return call.address;
    }
  return SimulatedDevice::do_reserve(size, seconds);
}

bool RecordedDevice::do_unreserve(Address reservation, Size, double&) {
  held_.erase(reservation);
  return true;
}

bool RecordedDevice::do_map(Address page, Size size, Size, double&) {
  if (refuses()) return false;
  note(CallKind::kMap, page, size);
  return true;
}

}  // namespace allocbench

// devices/recorded.cpp: a simulated device that answers as one in a recording did.
// SPDX-License-Identifier: Apache-2.0
#include "devices/recorded.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace allocbench {
namespace {

bool takes_back(Device::CallKind kind) {
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

void RecordedDevice::pass_over() {
  while (next_ < expected_.size() && expected_[next_].left == 0) ++next_;
}

// Did the recorded device refuse here? It did where memory was taken back next. When nothing has
// been taken back since the last refusal, the recording has lost the thread.
bool RecordedDevice::refuses() {
  pass_over();
  Size left = 0;
  std::size_t end = next_;
  for (; end < expected_.size() && takes_back(expected_[end].call.kind); ++end)
    left += expected_[end].left;
  if (left == 0 || left == refused_with_) {
    next_ = end;
    refused_with_ = 0;
    return false;
  }
  refused_with_ = left;
  return true;
}

Address RecordedDevice::do_allocate(Size size, Size reserved, double& seconds) {
  if (refuses()) return 0;
  for (std::size_t at = next_; at < expected_.size(); ++at) {
    auto& [call, left] = expected_[at];
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

// A call has been made that may be one of the recording.
void RecordedDevice::note(CallKind kind, Address address, Size size) {
  for (std::size_t at = next_; at < expected_.size(); ++at) {
    auto& [call, left] = expected_[at];
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

// A new reservation is mapped from its begin on.
Address RecordedDevice::do_reserve(Size size, double& seconds) {
  pass_over();
  for (std::size_t at = next_; at < expected_.size(); ++at)
    if (auto const& [call, left] = expected_[at];
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

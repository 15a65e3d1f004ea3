// core/device.cpp: where an allocator gets its segments.
// SPDX-License-Identifier: Apache-2.0
#include "core/device.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace allocbench {

Address Device::allocate(Size size, void const* owner) {
  std::scoped_lock const guard(mutex_);
  ++stats_.malloc_calls;
  double const before = stats_.seconds;
  Address const segment = do_allocate(size, reserved_, stats_.seconds);
  note(CallKind::kMalloc, segment, size, before);
  if (segment == 0) {
    ++stats_.refused_calls;
    return 0;
  }
  hold(segment, size, owner, false);
  reserved_ += size;
  return segment;
}

void Device::free(Address segment) {
  std::scoped_lock const guard(mutex_);
  free_held(held(segment, false));
}

Address Device::reserve(Size size, void const* owner) {
  require(size > 0 && size % granularity() == 0, "a reservation is a multiple of the granularity");
  std::scoped_lock const guard(mutex_);
  Address const reservation = do_reserve(size, stats_.seconds);
  if (reservation != 0) hold(reservation, size, owner, true);
  return reservation;
}

bool Device::map(Address page, Size size) {
  std::scoped_lock const guard(mutex_);
  auto const above = held_.upper_bound(page);
  require(above != held_.begin(), "a page lies in a reservation");
  auto const& [start, segment] = *std::prev(above);
  require(segment.reservation && page + size <= start + segment.size,
          "a page lies in a reservation");
  require(size > 0 && size % granularity() == 0 && (page - start) % granularity() == 0,
          "a page begins and ends at multiples of the granularity");
  auto const next = pages_.lower_bound(page);
  require((next == pages_.end() || page + size <= next->first) &&
              (next == pages_.begin() || std::prev(next)->first + std::prev(next)->second <= page),
          "a page is mapped once");
  ++stats_.map_calls;
  double const before = stats_.seconds;
  bool const mapped = do_map(page, size, reserved_, stats_.seconds);
  note(CallKind::kMap, mapped ? page : 0, size, before);
  if (!mapped) {
    ++stats_.refused_calls;
    return false;
  }
  pages_.emplace_hint(next, page, size);
  reserved_ += size;
  return true;
}

void Device::unmap(Address page, Size size) {
  std::scoped_lock const guard(mutex_);
  auto const found = pages_.find(page);
  if (found == pages_.end() || found->second != size)
    throw BadFree("the device has mapped no page of " + human_bytes(size) + " at " + hex(page));
  unmap(found);
}

void Device::unreserve(Address reservation) {
  std::scoped_lock const guard(mutex_);
  free_held(held(reservation, true));
}

void Device::free_all(void const* owner) {
  std::scoped_lock const guard(mutex_);
  for (auto segment = held_.begin(); segment != held_.end();) {
    auto const next = std::next(segment);
    if (segment->second.owner == owner) free_held(segment);
    segment = next;
  }
}

Device::Place Device::locate(Address address) const {
  std::scoped_lock const guard(mutex_);
  auto after = held_.upper_bound(address);
  if (after != held_.begin()) {
    auto const& [start, segment] = *std::prev(after);
    if (address - start < segment.size) return {segment.ordinal, address - start};
  }
  throw BadFree(hex(address) + " lies in no segment of the device");
}

DeviceStats Device::stats() const {
  std::scoped_lock const guard(mutex_);
  return stats_;
}

void Device::keep_calls(bool keep) {
  std::scoped_lock const guard(mutex_);
  keeps_calls_ = keep;
  calls_.clear();
}

std::vector<Device::Call> Device::take_calls() {
  std::scoped_lock const guard(mutex_);
  return std::exchange(calls_, {});
}

Size Device::reserved() const {
  std::scoped_lock const guard(mutex_);
  return reserved_;
}

Size Device::room() const {
  Size const held = reserved();
  return capacity() - std::min(capacity(), held);
}

Device::Segments::iterator Device::held(Address segment, bool reservation) {
  auto const found = held_.find(segment);
  if (found == held_.end() || found->second.reservation != reservation)
    throw BadFree("the device holds no " + std::string(reservation ? "reservation" : "segment") +
                  " at " + hex(segment));
  return found;
}

void Device::hold(Address segment, Size size, void const* owner, bool reservation) {
  held_.emplace(segment, Held{size, obtained_++, owner, reservation});
}

void Device::note(CallKind kind, Address address, Size size, double before) {
  if (keeps_calls_) calls_.push_back({kind, address == 0, address, size, stats_.seconds - before});
}

void Device::free_held(Segments::iterator segment) {
  auto const& [start, held] = *segment;
  if (held.reservation) {
    auto page = pages_.lower_bound(start);
    while (page != pages_.end() && page->first < start + held.size) page = unmap(page);
    do_unreserve(start, held.size, stats_.seconds);
  } else {
    ++stats_.free_calls;
    double const before = stats_.seconds;
    do_free(start, held.size, stats_.seconds);
    note(CallKind::kFree, start, held.size, before);
    reserved_ -= held.size;
  }
  held_.erase(segment);
}

Device::Pages::iterator Device::unmap(Pages::iterator page) {
  ++stats_.unmap_calls;
  double const before = stats_.seconds;
  do_unmap(page->first, page->second, stats_.seconds);
  note(CallKind::kUnmap, page->first, page->second, before);
  reserved_ -= page->second;
  return pages_.erase(page);
}

}  // namespace allocbench

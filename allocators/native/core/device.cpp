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
  Address const segment = closed_ ? 0 : do_allocate(size, reserved_, stats_.seconds);
  note(CallKind::kMalloc, segment, size, before);
  if (segment == 0) {
    ++stats_.refused_calls;
    return 0;
  }
  hold(segment, size, owner, Kind::kSegment);
  reserved_ += size;
  return segment;
}

void Device::free(Address segment) {
  std::scoped_lock const guard(mutex_);
  if (!closed_) free_held(held(segment, Kind::kSegment));
}

Address Device::reserve(Size size, void const* owner) {
  require(size > 0 && size % granularity() == 0, "a reservation is a multiple of the granularity");
  std::scoped_lock const guard(mutex_);
  Address const reservation = closed_ ? 0 : do_reserve(size, stats_.seconds);
  if (reservation != 0) hold(reservation, size, owner, Kind::kReservation);
  return reservation;
}

bool Device::adopt(Address segment, Size size, void const* owner) {
  std::scoped_lock const guard(mutex_);
  if (closed_ || !do_adopt(segment, size)) return false;
  hold(segment, size, owner, Kind::kSegment);
  reserved_ += size;
  return true;
}

void Device::unreserve(Address reservation) {
  std::scoped_lock const guard(mutex_);
  if (!closed_) free_held(held(reservation, Kind::kReservation));
}

void Device::keep_memory(bool keep) {
  std::scoped_lock const guard(mutex_);
  keeps_memory_ = keep;
  if (keep || closed_) return;
  for (auto segment = held_.begin(); segment != held_.end();) {
    Held const& held = segment->second;
    if (held.owner == nullptr) {
      segment = free_held(segment);
      continue;
    }
    if (held.kind == Kind::kReservation) free_pages(segment, true);
    ++segment;
  }
  do_blocks_freed(nullptr);
}

void Device::free_all(void const* owner) {
  std::scoped_lock const guard(mutex_);
  if (!std::exchange(indexed_, true)) {
    by_owner_.clear();
    for (auto const& [start, held] : held_) by_owner_[held.owner].push_back(start);
  }
  if (auto const found = by_owner_.extract(owner))
    for (Address const start : found.mapped())
      if (auto const segment = held_.find(start);
          segment != held_.end() && segment->second.owner == owner)
        free_held(segment);
  do_blocks_freed(owner);
}

std::size_t Device::close() {
  std::scoped_lock const guard(mutex_);
  keeps_memory_ = false;
  for (auto segment = held_.begin(); segment != held_.end();) segment = free_held(segment);
  std::size_t const more = do_blocks_freed(std::nullopt);
  closed_ = true;
  std::size_t const left = held_.size() + pages_ + more;
  if (left == 0 && !std::exchange(empty_, true)) do_close();
  return left;
}

bool Device::closed() const {
  std::scoped_lock const guard(mutex_);
  return closed_;
}

std::optional<std::string> Device::take_failure() {
  if (!failed()) [[likely]]
    return std::nullopt;
  std::scoped_lock const guard(failure_mutex_);
  if (!failed_.exchange(false)) return std::nullopt;
  return std::move(failure_);
}

void Device::fail(std::string what) {
  std::scoped_lock const guard(failure_mutex_);
  if (!failed_.exchange(true)) failure_ = std::move(what);
}

Device::Place Device::locate(Address address) const {
  std::scoped_lock const guard(mutex_);
  auto after = held_.upper_bound(address);
  if (after != held_.begin()) {
    auto const& [start, segment] = *std::prev(after);
    if (address - start < segment.size) return {segment.ordinal, address - start, segment.size};
  }
  throw BadFree(hex(address) + " is not inside any segment of the device");
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
  std::scoped_lock const guard(mutex_);
  return capacity() - std::min(capacity(), reserved_ + padding_);
}

Device::Segments::iterator Device::held(Address segment, Kind kind) {
  auto const entry = held_.find(segment);
  if (entry == held_.end() || entry->second.kind != kind || entry->second.owner == nullptr) {
    constexpr char const* kNames[] = {"segment", "reservation", "block of a pool"};
    throw BadFree(std::string("the device holds no ") + kNames[static_cast<int>(kind)] + " at " +
                  hex(segment));
  }
  return entry;
}

void Device::hold(Address segment, Size size, void const* owner, Kind kind) {
  // Most devices return lower addresses each time, or higher ones, so this needs no search.
  bool const last = !held_.empty() && segment > held_.rbegin()->first;
  auto const near = last ? held_.end() : held_.begin();
  indexed_ = false;
  Held held{size, obtained_++, owner, kind};
  if (spare_.empty()) {
    held_.emplace_hint(near, segment, std::move(held));
    return;
  }
  spare_.key() = segment;
  spare_.mapped() = std::move(held);
  held_.insert(near, std::move(spare_));
}

void Device::note(CallKind kind, Address address, Size size, double before) {
  if (keeps_calls_) calls_.push_back({kind, address == 0, address, size, stats_.seconds - before});
}

// Frees a segment, reservation or block and returns the next entry. Memory that the device fails to
// free stays, without an owner.
Device::Segments::iterator Device::free_held(Segments::iterator segment) {
  auto& [start, held] = *segment;
  if (keeps_memory_) {
    held.owner = nullptr;
    return std::next(segment);
  }
  double const before = stats_.seconds;
  bool freed = false;
  switch (held.kind) {
    case Kind::kSegment:
      ++stats_.free_calls;
      freed = do_free(start, held.size, stats_.seconds);
      note(CallKind::kFree, start, held.size, before);
      if (freed) reserved_ -= held.size;
      break;
    case Kind::kReservation:
      freed = free_pages(segment) && do_unreserve(start, held.size, stats_.seconds);
      break;
    case Kind::kBlock:
      ++stats_.free_calls;
      freed = do_free_block(start, held.size, stats_.seconds);
      note(CallKind::kFree, start, held.size, before);
      break;
  }
  if (freed) {
    auto const next = std::next(segment);
    spare_ = held_.extract(segment);
    return next;
  }
  held.owner = nullptr;
  return std::next(segment);
}

}  // namespace allocbench

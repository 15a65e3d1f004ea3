// core/device_pages.cpp: virtual memory: pages behind the addresses of reservations.
// SPDX-License-Identifier: Apache-2.0
#include <iterator>

#include "core/device.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"

namespace allocbench {

bool Device::map(Address first, Size size, Size page) {
  std::scoped_lock const guard(mutex_);
  if (closed_) return false;
  auto const reservation = reservation_around(first, size);
  auto const count = static_cast<std::uint32_t>(page / granularity());
  require(page > 0 && page % granularity() == 0 && size % page == 0 &&
              (first - reservation->first) % granularity() == 0,
          "a page begins and ends at multiples of the granularity");
  std::size_t const begin = (first - reservation->first) / granularity();
  std::size_t const end = begin + size / granularity();
  for (std::size_t at = begin; at < end; at += count) {
    if (map_page(reservation, {at, count})) continue;
    while (at > begin) unmap_page(reservation, {at -= count, count});
    return false;
  }
  return true;
}

void Device::unmap(Address first, Size size, Size page) {
  std::scoped_lock const guard(mutex_);
  if (closed_) return;
  auto const reservation = reservation_around(first, size);
  auto& [start, held] = *reservation;
  for (Address at = first; at < first + size; at += page) {
    auto const found =
        held.pages.first((at - start) / granularity(), (at + page - start) / granularity());
    if (start + found.first * granularity() != at || found.count * granularity() != page ||
        found.state != MappedPages::State::kMapped)
      throw BadFree("the device has mapped no page of " + human_bytes(page) + " at " + hex(at));
    unmap_page(reservation, found);
  }
}

Device::Segments::iterator Device::reservation_around(Address first, Size size) {
  auto const above = held_.upper_bound(first);
  require(above != held_.begin(), "a page lies in a reservation");
  auto const found = std::prev(above);
  auto const& [start, segment] = *found;
  require(segment.kind == Kind::kReservation && size > 0 && size <= segment.size &&
              first - start <= segment.size - size,
          "a page lies in a reservation");
  return found;
}

// False when the device refuses, or could not take back what was mapped there.
bool Device::map_page(Segments::iterator reservation, MappedPages::Page const& page) {
  auto& [start, held] = *reservation;
  if (auto const found = held.pages.first(page.first, page.end()); found.count > 0) {
    require(found.state == MappedPages::State::kUnreturned, "a page is mapped once");
    if (found.first != page.first || found.count != page.count) return false;
    held.pages.set(page);
    return true;  // the memory never went
  }
  Address const address = start + page.first * granularity();
  Size const size = page.count * granularity();
  ++stats_.map_calls;
  double const before = stats_.seconds;
  bool const mapped = do_map(address, size, reserved_, stats_.seconds);
  note(CallKind::kMap, mapped ? address : 0, size, before);
  if (!mapped) {
    ++stats_.refused_calls;
    return false;
  }
  held.pages.set(page);
  ++pages_;
  reserved_ += size;
  return true;
}

// Whether the device takes it.
bool Device::unmap_page(Segments::iterator reservation, MappedPages::Page page) {
  auto& [start, held] = *reservation;
  Address const address = start + page.first * granularity();
  Size const size = page.count * granularity();
  ++stats_.unmap_calls;
  double const before = stats_.seconds;
  bool const taken = do_unmap(address, size, stats_.seconds);
  note(CallKind::kUnmap, address, size, before);
  if (!taken) {
    page.state = MappedPages::State::kUnreturned;
    held.pages.set(page);
    return false;
  }
  held.pages.erase(page);
  --pages_;
  reserved_ -= size;
  return true;
}

// Is no page left?
bool Device::free_pages(Segments::iterator reservation) {
  MappedPages const& pages = reservation->second.pages;
  std::size_t const end = reservation->second.size / granularity();
  bool all = true;
  for (auto page = pages.first(0, end); page.count > 0; page = pages.first(page.end(), end))
    all &= unmap_page(reservation, page);
  return all;
}

}  // namespace allocbench

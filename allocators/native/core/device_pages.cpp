// core/device_pages.cpp: mapping and unmapping the pages of reservations.
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
  for (std::size_t granule = begin; granule < end; granule += count) {
    if (map_page(reservation, {granule, count})) continue;
    while (granule > begin) unmap_page(reservation, {granule -= count, count});
    return false;
  }
  return true;
}

void Device::unmap(Address first, Size size, Size page) {
  std::scoped_lock const guard(mutex_);
  if (closed_) return;
  auto const reservation = reservation_around(first, size);
  auto& [start, held] = *reservation;
  for (Address address = first; address < first + size; address += page) {
    auto const mapped = held.pages.first((address - start) / granularity(),
                                         (address + page - start) / granularity());
    if (start + mapped.first * granularity() != address || mapped.count * granularity() != page ||
        mapped.state != MappedPages::State::kMapped)
      throw BadFree("the device has no mapped page of " + human_bytes(page) + " at " +
                    hex(address));
    unmap_page(reservation, mapped);
  }
}

bool Device::adopt_pages(Address reservation, Size size, Size page,
                         std::vector<Segment> const& mapped, void const* owner) {
  std::scoped_lock const guard(mutex_);
  if (closed_ || !do_adopt(reservation, size)) return false;
  hold(reservation, size, owner, Kind::kReservation);
  auto& pages = held_.at(reservation).pages;
  auto const count = static_cast<std::uint32_t>(page / granularity());
  for (Segment const& range : mapped)
    for (Size offset = 0; offset < range.size; offset += page) {
      pages.set({(range.address + offset - reservation) / granularity(), count});
      ++pages_;
      reserved_ += page;
    }
  return true;
}

Device::Segments::iterator Device::reservation_around(Address first, Size size) {
  auto const above = held_.upper_bound(first);
  require(above != held_.begin(), "a page is inside a reservation");
  auto const reservation = std::prev(above);
  auto const& [start, segment] = *reservation;
  require(segment.kind == Kind::kReservation && size > 0 && size <= segment.size &&
              first - start <= segment.size - size,
          "a page is inside a reservation");
  return reservation;
}

// False if the device refuses, or if unreturned pages of another size are in the way.
bool Device::map_page(Segments::iterator reservation, MappedPages::Page const& page) {
  auto& [start, held] = *reservation;
  if (auto const present = held.pages.first(page.first, page.end()); present.count > 0) {
    require(present.state == MappedPages::State::kUnreturned, "a page is mapped once");
    if (present.first != page.first || present.count != page.count) return false;
    held.pages.set(page);
    return true;  // the page is still mapped, because the device failed to unmap it
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

// False if the device fails to unmap the page.
bool Device::unmap_page(Segments::iterator reservation, MappedPages::Page page) {
  auto& [start, held] = *reservation;
  Address const address = start + page.first * granularity();
  Size const size = page.count * granularity();
  if (keeps_memory_ || !unmapped(address, size)) {
    page.state = MappedPages::State::kUnreturned;
    held.pages.set(page);
    return false;
  }
  held.pages.erase(page);
  --pages_;
  reserved_ -= size;
  return true;
}

// Calls the device, counts the call and returns its success.
bool Device::unmapped(Address page, Size size) {
  ++stats_.unmap_calls;
  double const before = stats_.seconds;
  bool const success = do_unmap(page, size, stats_.seconds);
  note(CallKind::kUnmap, page, size, before);
  return success;
}

// Unmaps all pages, or only the unreturned ones. False if the device fails to unmap any of them.
bool Device::free_pages(Segments::iterator reservation, bool unreturned_only) {
  MappedPages const& pages = reservation->second.pages;
  std::size_t const end = reservation->second.size / granularity();
  bool all = true;
  for (auto page = pages.first(0, end); page.count > 0; page = pages.first(page.end(), end))
    if (!unreturned_only || page.state == MappedPages::State::kUnreturned)
      all &= unmap_page(reservation, page);
  return all;
}

}  // namespace allocbench

// core/device.cpp: where an allocator gets its segments, pages and driver pools.
// SPDX-License-Identifier: Apache-2.0
#include "core/device.hpp"

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
  if (segment == 0) return false;  // the null address
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

void Device::keep_calls(bool keep) {
  std::scoped_lock const guard(mutex_);
  keeps_calls_ = keep;
  calls_.clear();
}

std::vector<Device::Call> Device::take_calls() {
  std::scoped_lock const guard(mutex_);
  return std::exchange(calls_, {});
}

Size Device::capacity() const {
  Size const stated = stated_capacity();
  same_from(stated);
  same_below(stated + 1);
  return stated;
}

Size Device::room() const {
  std::scoped_lock const guard(mutex_);
  return capacity() - std::min(capacity(), reserved_ + padding_);
}

bool Device::has(Size size) const {
  bool const enough = size <= stated_capacity();
  enough ? same_from(size) : same_below(size);
  return enough;
}

bool Device::has_room(Size size) const {
  std::scoped_lock const guard(mutex_);
  return has(sum(reserved_ + padding_, size));
}

void Device::same_from(Size from) const {
  for (Size now = same_from_; from > now && !same_from_.compare_exchange_weak(now, from);) {
  }
}

void Device::same_below(Size below) const {
  for (Size now = same_below_; below < now && !same_below_.compare_exchange_weak(now, below);) {
  }
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

PoolDevice::PoolHandle PoolDevice::open_pool(Size keep, void const* owner) {
  std::scoped_lock const guard(mutex_);
  PoolHandle const pool = closed_ ? 0 : do_open_pool(keep, stats_.seconds);
  if (pool != 0) pools_.emplace(pool, OpenPool{owner});
  return pool;
}

Address PoolDevice::allocate_from(PoolHandle pool, Size size, Stream stream) {
  std::scoped_lock const guard(mutex_);
  if (closed_) return 0;
  auto const [owner, held] = pools_.at(pool);
  ++stats_.malloc_calls;
  double const before = stats_.seconds;
  Address const block = do_allocate_from(pool, size, stream, reserved_ - held, stats_.seconds);
  note(CallKind::kMalloc, block, size, before);
  if (block == 0) {
    ++stats_.refused_calls;
  } else {
    hold(block, size, owner, Kind::kBlock);
    blocks_[block] = {pool, stream};
  }
  recount(pool);
  return block;
}

void PoolDevice::free_to(PoolHandle pool, Address block, Stream stream) {
  std::scoped_lock const guard(mutex_);
  if (closed_) return;
  auto const segment = held(block, Kind::kBlock);
  blocks_.at(block).stream = stream;
  free_held(segment);
  recount(pool);
}

void PoolDevice::trim_pool(PoolHandle pool) {
  std::scoped_lock const guard(mutex_);
  if (closed_ || keeps_memory()) return;
  do_trim_pool(pool, stats_.seconds);
  recount(pool);
}

Size PoolDevice::held_by(PoolHandle pool) const {
  std::scoped_lock const guard(mutex_);
  auto const entry = pools_.find(pool);
  return entry == pools_.end() ? 0 : entry->second.reserved;
}

Size PoolDevice::recount_pools() {
  Size const before = reserved_;
  for (auto const& [pool, open] : pools_) recount(pool);
  return before - reserved_;
}

bool PoolDevice::do_free_block(Address block, Size size, double& seconds) {
  auto const entry = blocks_.find(block);
  if (!do_free_to(entry->second.pool, block, size, entry->second.stream, seconds)) return false;
  blocks_.erase(entry);
  return true;
}

std::size_t PoolDevice::do_blocks_freed(std::optional<void const*> owner) {
  for (auto pool = pools_.begin(); pool != pools_.end();) {
    auto const next = std::next(pool);
    if (!owner || pool->second.owner == *owner) close_pool(pool->first);
    pool = next;
  }
  return pools_.size();
}

// Updates the reserved bytes with the bytes that the pool holds now.
void PoolDevice::recount(PoolHandle pool) {
  Size& reserved = pools_.at(pool).reserved;
  reserved_ -= reserved;
  reserved = do_held_by(pool, reserved);
  reserved_ += reserved;
}

void PoolDevice::close_pool(PoolHandle pool) {
  if (keeps_memory() || !do_close_pool(pool, stats_.seconds)) {
    pools_.at(pool).owner = nullptr;
    return;
  }
  reserved_ -= pools_.at(pool).reserved;
  pools_.erase(pool);
}

}  // namespace allocbench

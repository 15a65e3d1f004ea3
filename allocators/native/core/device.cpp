// core/device.cpp: where an allocator gets its segments.
// SPDX-License-Identifier: Apache-2.0
#include "core/device.hpp"

#include <algorithm>
#include <iterator>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace allocbench {

Address Device::allocate(Size size, void const* owner) {
  std::scoped_lock const guard(mutex_);
  ++stats_.malloc_calls;
  Address const segment = do_allocate(size, reserved_, stats_.seconds);
  if (segment == 0) {
    ++stats_.refused_calls;
    return 0;
  }
  held_.emplace(segment, Held{size, obtained_++, owner});
  reserved_ += size;
  return segment;
}

void Device::free(Address segment) {
  std::scoped_lock const guard(mutex_);
  auto const found = held_.find(segment);
  if (found == held_.end()) throw BadFree("the device holds no segment at " + hex(segment));
  free_held(found);
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

Size Device::reserved() const {
  std::scoped_lock const guard(mutex_);
  return reserved_;
}

Size Device::room() const {
  Size const held = reserved();
  return capacity() - std::min(capacity(), held);
}

void Device::free_held(std::map<Address, Held>::iterator segment) {
  ++stats_.free_calls;
  do_free(segment->first, segment->second.size, stats_.seconds);
  reserved_ -= segment->second.size;
  held_.erase(segment);
}

}  // namespace allocbench

// strategies/slab.cpp: slabs of equal objects, by size class.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/slab.hpp"

#include <algorithm>
#include <cmath>

#include "core/errors.hpp"

namespace allocbench {

Slab::Slab(Device& device, Options const& given)
    : Allocator(device), slab_size_(given.bytes("slab")) {
  if (slab_size_ < kUnit) given.reject("slab", "must be at least 256 bytes");
  double const empty = given.number("empty_slabs");
  if (!(empty >= 0 && empty <= 1e6 && empty == std::floor(empty)))
    given.reject("empty_slabs", "must be an integer from 0 to 1000000");
  empty_slabs_ = static_cast<std::size_t>(empty);
}

Block Slab::do_allocate(Size requested, Stream) {
  std::size_t const size_class = Class::at_least(round_up(requested, kUnit) / kUnit);
  Size const object = kUnit * Class::smallest(size_class);
  Kind& kind = kinds_[size_class];
  bool available = !kind.partial.empty() || !kind.empty.empty() || grow(kind, object);
  if (!available && release_idle()) {
    count_retry();
    available = grow(kind, object);
  }
  if (!available) return {};

  Slabs& from = kind.partial.empty() ? kind.empty : kind.partial;
  auto const slab = from.begin();
  std::size_t slot = slab->requested.size();
  if (slab->free.empty()) {
    slab->requested.push_back(requested);
  } else {
    slot = slab->free.back();
    slab->free.pop_back();
    slab->requested[slot] = requested;
  }
  Slabs& to = slab->full() ? kind.full : kind.partial;
  to.splice(to.begin(), from, slab);
  Block const block = slab->block(slot);
  allocated_.insert(block.address, slab->number);
  return block;
}

Block Slab::do_deallocate(Address address, Stream) {
  Index const number = allocated_.erase(address);
  if (number == kNone) return {};
  auto const slab = slabs_[number];
  Kind& kind = *slab->kind;
  Slabs& from = slab->full() ? kind.full : kind.partial;
  auto const slot = static_cast<Index>((address - slab->address) / slab->object);
  Block const freed = slab->block(slot);
  slab->requested[slot] = 0;
  slab->free.push_back(slot);
  Slabs& to = slab->empty() ? kind.empty : kind.partial;
  to.splice(to.begin(), from, slab);
  if (kind.empty.size() > empty_slabs_) release_slab(kind.empty.begin());
  return freed;
}

bool Slab::grow(Kind& kind, Size object) {
  auto const [address, size] = acquire_between(object, slab_size_, kUnit);
  if (address == 0) return false;
  if (released_.empty()) {
    released_.push_front({.number = static_cast<Index>(slabs_.size())});
    slabs_.push_back(released_.begin());
  }
  auto const slab = released_.begin();
  slab->kind = &kind;
  slab->address = address;
  slab->size = size;
  slab->object = object;
  slab->most = size / object;
  kind.empty.splice(kind.empty.begin(), released_, slab);
  return true;
}

// The slab must be empty.
void Slab::release_slab(Slabs::iterator slab) {
  release(slab->address, slab->size);
  slab->requested.clear();
  slab->free.clear();
  released_.splice(released_.begin(), slab->kind->empty, slab);
}

// Returns every empty slab; false if there was none.
bool Slab::release_idle() {
  if (!returns_memory()) return false;
  bool any = false;
  for (Kind& kind : kinds_)
    for (; !kind.empty.empty(); any = true) release_slab(kind.empty.begin());
  return any;
}

std::vector<Segment> Slab::do_snapshot() const {
  std::vector<Segment> all;
  for (Kind const& kind : kinds_)
    for (Slabs const* slabs : {&kind.full, &kind.partial, &kind.empty})
      for (Objects const& slab : *slabs) {
        Segment& segment = all.emplace_back(Segment{slab.address, slab.size, {}});
        for (std::size_t object = 0; object < slab.requested.size(); ++object)
          segment.blocks.push_back(slab.block(object));
        Size const used = slab.requested.size() * slab.object;
        if (used < slab.size) segment.blocks.push_back({slab.address + used, slab.size - used, 0});
      }
  return all;
}

Size Slab::do_largest_free() const {
  Size largest = 0;
  for (Kind const& kind : kinds_)
    for (Slabs const* slabs : {&kind.full, &kind.partial, &kind.empty})
      for (Objects const& slab : *slabs)
        largest = std::max({largest, slab.size - slab.requested.size() * slab.object,
                            slab.free.empty() ? 0 : slab.object});
  return largest;
}

void Slab::do_check() const {
  std::size_t allocated = 0;
  for (Kind const& kind : kinds_) {
    for (Objects const& slab : kind.full) require(slab.full(), "a full slab has no free object");
    for (Objects const& slab : kind.partial)
      require(!slab.full() && !slab.empty(), "a partial slab has free objects and objects in use");
    for (Objects const& slab : kind.empty)
      require(slab.empty(), "an empty slab has no object in use");
    require(kind.empty.size() <= empty_slabs_, "a class keeps at most `empty_slabs` empty slabs");
    for (Slabs const* slabs : {&kind.full, &kind.partial, &kind.empty})
      for (Objects const& slab : *slabs) {
        require(&*slabs_[slab.number] == &slab, "a slab is registered under its number");
        allocated += slab.requested.size() - slab.free.size();
      }
  }
  require(allocated == allocated_.size(), "the address map contains only objects in use");
}

}  // namespace allocbench

// strategies/slab.hpp: slabs of equal objects, by size class.
// SPDX-License-Identifier: Apache-2.0
//
// A request is rounded up to its size class: multiples of 256 bytes up to 2 KiB, then eight classes
// per power of two, so less than an eighth is added (a buddy allocator can nearly double a size). A
// slab is a segment divided into objects of one class. Each class has three lists of slabs: full,
// partial and empty. A request is served from a partial slab or, if there is none, from an empty or
// a new one. A class keeps up to `empty_slabs` empty slabs. The others are returned to the device
// at once, and all of them at a trim and when the device is full. A request and a free take O(1)
// expected steps, except those that call the device.
//
// Bad at: many classes with few objects each, and sizes that change, because a partial slab serves
// no other class.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <list>
#include <vector>

#include "core/allocator.hpp"
#include "core/errors.hpp"
#include "parts/address_map.hpp"
#include "parts/size_class.hpp"

namespace allocbench {

class Slab : public Allocator {
 public:
  static constexpr Size kUnit = 256;
  using Class = SizeClass<3>;  // of sizes in units
  static constexpr Option options[] = {
      {"slab", OptionType::kBytes, "2MiB",
       "bytes of a slab; classes of larger objects have one object per slab"},
      {"empty_slabs", OptionType::kNumber, "1", "number of empty slabs that each class keeps"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "slab",
      .summary = "slabs of equally sized objects per size class; returns empty slabs",
      .worst_case =
          "inside an object: 255 bytes or an eighth; outside: all but one object per slab",
      .reference = "Bonwick, The slab allocator, USENIX Summer 1994",
      .options = options,
      .largest_request =
          [](Size capacity) { return kUnit * Class::smallest(Class::of(capacity / kUnit)); },
      .exemption = "sizes are rounded up to a class, less than an eighth larger",
  };

  Slab(Device& device, Options const& given) : Allocator(device), slab_size_(given.bytes("slab")) {
    if (slab_size_ < kUnit) given.reject("slab", "must be at least 256 bytes");
    double const empty = given.number("empty_slabs");
    if (!(empty >= 0 && empty <= 1e6 && empty == std::floor(empty)))
      given.reject("empty_slabs", "must be an integer from 0 to 1000000");
    empty_slabs_ = static_cast<std::size_t>(empty);
  }

  StrategyInfo const& info() const override { return strategy; }

 private:
  struct Objects;  // one slab
  using Slabs = std::list<Objects>;
  struct Kind {  // the slabs of one class
    Slabs full, partial, empty;
  };
  struct Objects {
    Index number;
    Kind* kind = nullptr;
    Address address = 0;
    Size size = 0;                     // of the segment, which starts with the objects
    Size object = 0;                   // bytes of each object
    std::size_t most = 0;              // objects that fit into the segment
    std::vector<Size> requested = {};  // bytes requested for each object so far; 0: free
    std::vector<Index> free = {};      // free objects; the last one was freed last

    bool full() const { return free.empty() && requested.size() == most; }
    bool empty() const { return free.size() == requested.size(); }
    Block block(std::size_t number) const {
      return {address + number * object, object, requested[number]};
    }
  };

 protected:
  [[gnu::flatten]] Block do_allocate(Size requested, Stream) override {
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

  [[gnu::flatten]] Block do_deallocate(Address address, Stream) override {
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

  void do_trim() override { release_idle(); }

  std::vector<Segment> do_snapshot() const override {
    std::vector<Segment> all;
    for (Kind const& kind : kinds_)
      for (Slabs const* slabs : {&kind.full, &kind.partial, &kind.empty})
        for (Objects const& slab : *slabs) {
          Segment& segment = all.emplace_back(Segment{slab.address, slab.size, {}});
          for (std::size_t object = 0; object < slab.requested.size(); ++object)
            segment.blocks.push_back(slab.block(object));
          Size const used = slab.requested.size() * slab.object;
          if (used < slab.size)
            segment.blocks.push_back({slab.address + used, slab.size - used, 0});
        }
    return all;
  }

  Size do_largest_free() const override {
    Size largest = 0;
    for (Kind const& kind : kinds_)
      for (Slabs const* slabs : {&kind.full, &kind.partial, &kind.empty})
        for (Objects const& slab : *slabs)
          largest = std::max({largest, slab.size - slab.requested.size() * slab.object,
                              slab.free.empty() ? 0 : slab.object});
    return largest;
  }

  void do_check() const override {
    std::size_t allocated = 0;
    for (Kind const& kind : kinds_) {
      for (Objects const& slab : kind.full) require(slab.full(), "a full slab has no free object");
      for (Objects const& slab : kind.partial)
        require(!slab.full() && !slab.empty(),
                "a partial slab has free objects and objects in use");
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

  Counters do_counters() const override { return {{"search_steps", allocated_.search_steps()}}; }

 private:
  bool grow(Kind& kind, Size object) {
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
  void release_slab(Slabs::iterator slab) {
    release(slab->address, slab->size);
    slab->requested.clear();
    slab->free.clear();
    released_.splice(released_.begin(), slab->kind->empty, slab);
  }

  // Returns every empty slab; false if there was none.
  bool release_idle() {
    if (!returns_memory()) return false;
    bool any = false;
    for (Kind& kind : kinds_)
      for (; !kind.empty.empty(); any = true) release_slab(kind.empty.begin());
    return any;
  }

  Size slab_size_;
  std::size_t empty_slabs_;
  std::array<Kind, Class::kCount> kinds_;
  std::vector<Slabs::iterator> slabs_;  // by number
  Slabs released_;                      // kept, without memory, for slabs to come
  AddressMap allocated_;                // address -> number of its slab
};

}  // namespace allocbench

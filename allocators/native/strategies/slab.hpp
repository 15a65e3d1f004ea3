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

#include <array>
#include <list>
#include <vector>

#include "core/allocator.hpp"
#include "parts/address_map.hpp"
#include "parts/node.hpp"
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

  Slab(Device& device, Options const& given);
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
  Block do_allocate(Size requested, Stream) override;
  Block do_deallocate(Address address, Stream) override;
  void do_trim() override { release_idle(); }
  std::vector<Segment> do_snapshot() const override;
  Size do_largest_free() const override;
  void do_check() const override;
  Counters do_counters() const override { return {{"search_steps", allocated_.search_steps()}}; }

 private:
  bool grow(Kind& kind, Size object);
  void release_slab(Slabs::iterator slab);
  bool release_idle();

  Size slab_size_;
  std::size_t empty_slabs_;
  std::array<Kind, Class::kCount> kinds_;
  std::vector<Slabs::iterator> slabs_;  // by number
  Slabs released_;                      // kept, without memory, for slabs to come
  AddressMap allocated_;                // address -> number of its slab
};

}  // namespace allocbench

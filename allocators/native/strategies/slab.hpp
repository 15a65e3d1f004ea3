// strategies/slab.hpp: slabs of equal objects, one kind of slab for each size class.
// SPDX-License-Identifier: Apache-2.0
//
// A request is rounded up to its size class: multiples of 256 bytes up to 2 KiB, then eight classes
// to each power of two, so less than an eighth is added (the buddy nearly doubles). A slab is a
// segment cut into objects of one class; each class keeps its slabs in three lists: full, partial
// and empty. Requests are served from a partial slab, else from an empty one, else from a new one.
// A slab that becomes empty stays for its class, up to a number of them; beyond that, on a trim,
// and when the device is full, empty slabs go back to the device.
// A request and a free take O(1) expected steps, apart from those that call the device.
//
// Bad at: many classes with few objects each, and sizes that change: a partial slab serves no
// other class.
#pragma once

#include <array>
#include <list>
#include <vector>

#include "core/allocator.hpp"
#include "parts/address_map.hpp"
#include "parts/node.hpp"
#include "parts/size_class.hpp"

namespace allocbench {

class Slab final : public Allocator {
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
    Kind* kind;
    Address address;
    Size size;                         // of the segment; objects are cut from its front
    Size object;                       // bytes of each
    std::vector<Size> requested = {};  // by object cut; 0: free
    std::vector<Index> free = {};      // objects cut and free, the last freed last

    std::size_t room() const { return size / object - requested.size() + free.size(); }
    bool empty() const { return free.size() == requested.size(); }
    Block block(std::size_t at) const { return {address + at * object, object, requested[at]}; }
  };

  Block do_allocate(Size requested, Stream) override;
  Block do_deallocate(Address address, Stream) override;
  void do_trim() override { give_back(); }
  std::vector<Segment> do_snapshot() const override;
  Size do_largest_free() const override;
  void do_check() const override;
  Counters do_counters() const override { return {{"steps", allocated_.steps()}}; }

  bool grow(Kind& kind, Size object);
  void release_slab(Slabs::iterator slab);
  bool give_back();

  Size slab_size_;
  std::size_t empty_slabs_;
  std::array<Kind, Class::kCount> kinds_;
  std::vector<Slabs::iterator> slabs_;  // by number; those given back are in `unused_`
  std::vector<Index> unused_;
  AddressMap allocated_;  // address -> number of its slab
};

}  // namespace allocbench

// strategies/external.hpp: an allocator from outside of the core, a shared library or a Python
// class. SPDX-License-Identifier: Apache-2.0
//
// It gets its segments through SegmentSource, so that its reserved bytes, its device calls and the
// limits around it count as those of every strategy. What it returns is verified before use.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "core/allocator.hpp"

namespace allocbench {

// Where an external allocator gets its segments.
class SegmentSource {
 public:
  virtual Address allocate_segment(Size size) = 0;  // 0: the device refuses
  virtual bool free_segment(Address segment) = 0;   // false: there is no such segment
  virtual Size room_for_segments() const = 0;       // bytes that the device still has
  virtual Size capacity() const = 0;

 protected:
  ~SegmentSource() = default;
};

class ExternalAllocator {
 public:
  virtual ~ExternalAllocator() = default;
  virtual Address allocate(Size requested, Stream stream) = 0;  // 0: out of memory
  virtual void free(Address address, Size requested, Stream stream) = 0;
  virtual void trim() {}
};

// How an allocator is made from a Python class; the module for Python sets it.
using MakeFromClass = std::unique_ptr<ExternalAllocator> (*)(std::string const& name,
                                                             SegmentSource& source);
void set_make_from_class(MakeFromClass make);

// The two functions of a library, an allocator that PyTorch can be given. Throws SpecError if the
// library cannot be loaded or lacks a function.
std::unique_ptr<ExternalAllocator> load_library(std::string const& file, std::string const& malloc,
                                                std::string const& free, SegmentSource& source);

class External : public Allocator, private SegmentSource {
 public:
  static StrategyInfo const strategy;

  // Throws SpecError if the library or the class cannot be loaded.
  External(Device& device, Options const& options);
  ~External() override;
  StrategyInfo const& info() const override { return strategy; }

 protected:
  // These throw SpecError if the external allocator breaks a rule of an allocator.
  Block do_allocate(Size requested, Stream stream) override;
  Block do_deallocate(Address address, Stream stream) override;
  void do_trim() override { external_->trim(); }
  std::vector<Segment> do_snapshot() const override;
  Size do_largest_free() const override;

 private:
  Address allocate_segment(Size size) override;
  bool free_segment(Address segment) override;
  Size room_for_segments() const override { return room(); }
  Size capacity() const override { return device().capacity(); }

  void verify(Block const& block) const;
  [[noreturn]] void reject(std::string const& what) const;
  // The live blocks of a segment: iterators of live_.
  auto blocks_in(Address start, Size size) const {
    return std::pair(live_.lower_bound(start), live_.lower_bound(start + size));
  }

  // The free bytes directly below and above an address of a segment that no live block covers.
  struct Gaps {
    Size below, above;
  };
  Gaps gaps_around(Block const& block) const;
  void add_gap(Size size);
  void remove_gap(Size size);

  std::string name_;
  std::map<Address, Size> segments_;
  std::multiset<Size> gaps_;  // between the live blocks of each segment
  std::map<Address, Block> live_;
  std::unique_ptr<ExternalAllocator> external_;
};

}  // namespace allocbench

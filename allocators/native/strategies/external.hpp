// strategies/external.hpp: an allocator of your own, a shared library or a Python class.
// SPDX-License-Identifier: Apache-2.0
//
// It gets its segments through SegmentSource, so that its reserved bytes, its device calls and the
// limits around it count as those of every strategy. What it returns is verified before use.
#pragma once

#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "core/allocator.hpp"
#include "core/errors.hpp"
#include "core/text.hpp"

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
inline MakeFromClass make_from_class = nullptr;

// The two functions of a library, an allocator that PyTorch can be given. Throws SpecError if the
// library cannot be loaded or lacks a function.
std::unique_ptr<ExternalAllocator> load_library(std::string const& file, std::string const& malloc,
                                                std::string const& free, SegmentSource& source);

class External : public Allocator, private SegmentSource {
 public:
  static constexpr Option options[] = {
      {"library", OptionType::kText, "",
       "a shared library with the two functions of a pluggable "
       "allocator of PyTorch; ./mine.so is short for it"},
      {"malloc", OptionType::kText, "my_malloc", "the function that allocates, in the library"},
      {"free", OptionType::kText, "my_free", "the function that frees, in the library"},
      {"class", OptionType::kText, "",
       "a Python class, as module:Class, which is also the short form"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "external",
      .summary = "an allocator of your own: a shared library or a Python class",
      .worst_case = "unknown",
      .reference = "CUDAPluggableAllocator, PyTorch",
      .options = options,
  };

  // Throws SpecError if the library or the class cannot be loaded.
  External(Device& device, Options const& given) : Allocator(device) {
    bool const from_library = given.given("library");
    if (from_library == given.given("class"))
      throw SpecError("external needs either library=FILE or class=MODULE:CLASS");
    name_ = given.text(from_library ? "library" : "class");
    SegmentSource& source = *this;
    if (from_library)
      external_ = load_library(name_, given.text("malloc"), given.text("free"), source);
    else if (make_from_class != nullptr)
      external_ = make_from_class(name_, source);
    else
      throw SpecError(name_ + ": a class needs Python");
  }

  ~External() override { external_.reset(); }  // it may free segments
  StrategyInfo const& info() const override { return strategy; }

 protected:
  // These throw SpecError if the external allocator breaks a rule of an allocator.
  [[gnu::flatten]] Block do_allocate(Size requested, Stream stream) override {
    Address const address = external_->allocate(requested, without_pool(stream));
    if (address == 0) return {};
    Block const block{address, requested, requested};
    verify(block);
    auto const [below, above] = gaps_around(block);
    remove_gap(below + block.size + above);
    add_gap(below);
    add_gap(above);
    live_.emplace(address, block);
    return block;
  }

  [[gnu::flatten]] Block do_deallocate(Address address, Stream stream) override {
    auto const entry = live_.find(address);
    if (entry == live_.end()) return {};
    Block const block = entry->second;
    live_.erase(entry);
    auto const [below, above] = gaps_around(block);
    remove_gap(below);
    remove_gap(above);
    add_gap(below + block.size + above);
    external_->free(address, block.requested, without_pool(stream));
    return block;
  }

  void do_trim() override { external_->trim(); }
  std::vector<Segment> do_snapshot() const override {
    std::vector<Segment> all;
    for (auto const& [start, size] : segments_) {
      auto const [first, last] = blocks_in(start, size);
      all.push_back(tiled(start, size, first, last));
    }
    return all;
  }

  Size do_largest_free() const override { return gaps_.empty() ? 0 : *gaps_.rbegin(); }

 private:
  Address allocate_segment(Size size) override {
    if (size == 0) return 0;
    Address const segment = acquire(size);
    if (segment != 0) {
      segments_.emplace(segment, size);
      add_gap(size);
    }
    return segment;
  }

  bool free_segment(Address segment) override {
    auto const entry = segments_.find(segment);
    if (entry == segments_.end()) return false;
    auto const [first, last] = blocks_in(segment, entry->second);
    if (first != last)
      reject("gave the segment at " + hex(segment) + " back, in which the block " +
             range(first->first, first->second.size) + " is in use");
    release(segment, entry->second);
    remove_gap(entry->second);
    segments_.erase(entry);
    return true;
  }

  Size room_for_segments() const override { return room(); }
  Size capacity() const override { return device().capacity(); }

  void verify(Block const& block) const {
    std::string const returned = "returned the block " + range(block.address, block.size);
    auto const segment = segments_.upper_bound(block.address);
    if (segment == segments_.begin() || [&] {
          auto const& [start, size] = *std::prev(segment);
          return block.end() > start + size;
        }())
      reject(returned + ", which is not inside of a segment that it holds");
    auto const above = live_.lower_bound(block.address);
    for (auto const& other : {above, above == live_.begin() ? live_.end() : std::prev(above)})
      if (other != live_.end() && other->first < block.end() && other->second.end() > block.address)
        reject(returned + ", which overlaps the block " + range(other->first, other->second.size) +
               " in use");
  }

  [[noreturn]] void reject(std::string const& what) const { throw SpecError(name_ + " " + what); }
  static std::string range(Address start, Size size) {
    return hex(start) + " to " + hex(start + size);
  }
  using Live = std::map<Address, Block>;
  // The live blocks of a segment.
  std::pair<Live::const_iterator, Live::const_iterator> blocks_in(Address start, Size size) const {
    return {live_.lower_bound(start), live_.lower_bound(start + size)};
  }

  // The free bytes directly below and above an address of a segment that no live block covers.
  struct Gaps {
    Size below, above;
  };
  Gaps gaps_around(Block const& block) const {
    auto const segment = std::prev(segments_.upper_bound(block.address));
    auto const [first, last] = blocks_in(segment->first, segment->second);
    auto const above = live_.lower_bound(block.end());
    auto const here = live_.lower_bound(block.address);
    Address const begin = here == first ? segment->first : std::prev(here)->second.end();
    Address const end = above == last ? segment->first + segment->second : above->first;
    return {block.address - begin, end - block.end()};
  }

  void add_gap(Size size) {
    if (size != 0) gaps_.insert(size);
  }
  void remove_gap(Size size) {
    if (size != 0) gaps_.erase(gaps_.find(size));
  }

  std::string name_;
  std::map<Address, Size> segments_;
  std::multiset<Size> gaps_;  // between the live blocks of each segment
  Live live_;
  std::unique_ptr<ExternalAllocator> external_;
};

}  // namespace allocbench

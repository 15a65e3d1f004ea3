// strategies/external.cpp: verifies what an external allocator returns.
// SPDX-License-Identifier: Apache-2.0
#include "strategies/external.hpp"

#include <algorithm>
#include <iterator>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace allocbench {
namespace {

constexpr Option kOptions[] = {
    {"library", OptionType::kText, "",
     "a shared library with the two functions of a pluggable "
     "allocator of PyTorch; ./mine.so is short for it"},
    {"malloc", OptionType::kText, "my_malloc", "the function that allocates, in the library"},
    {"free", OptionType::kText, "my_free", "the function that frees, in the library"},
    {"class", OptionType::kText, "",
     "a Python class, as module:Class, which is also the short form"},
};

MakeFromClass make_from_class = nullptr;

std::string range(Address start, Size size) { return hex(start) + " to " + hex(start + size); }

}  // namespace

StrategyInfo const External::strategy = {
    .name = "external",
    .summary = "an allocator of your own: a shared library or a Python class",
    .worst_case = "unknown",
    .reference = "CUDAPluggableAllocator, PyTorch",
    .options = kOptions,
};

void set_make_from_class(MakeFromClass make) { make_from_class = make; }

External::External(Device& device, Options const& options) : Allocator(device) {
  bool const from_library = options.given("library");
  if (from_library == options.given("class"))
    throw SpecError("external needs either library=FILE or class=MODULE:CLASS");
  name_ = options.text(from_library ? "library" : "class");
  SegmentSource& source = *this;
  if (from_library)
    external_ = load_library(name_, options.text("malloc"), options.text("free"), source);
  else if (make_from_class != nullptr)
    external_ = make_from_class(name_, source);
  else
    throw SpecError(name_ + ": a class needs Python");
}

External::~External() { external_.reset(); }  // it may free segments

Block External::do_allocate(Size requested, Stream stream) {
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

Block External::do_deallocate(Address address, Stream stream) {
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

std::vector<Segment> External::do_snapshot() const {
  std::vector<Segment> all;
  for (auto const& [start, size] : segments_) {
    auto const [first, last] = blocks_in(start, size);
    all.push_back(tiled(start, size, first, last));
  }
  return all;
}

Size External::do_largest_free() const { return gaps_.empty() ? 0 : *gaps_.rbegin(); }

External::Gaps External::gaps_around(Block const& block) const {
  auto const segment = std::prev(segments_.upper_bound(block.address));
  auto const [first, last] = blocks_in(segment->first, segment->second);
  auto const above = live_.lower_bound(block.end());
  auto const here = live_.lower_bound(block.address);
  Address const begin = here == first ? segment->first : std::prev(here)->second.end();
  Address const end = above == last ? segment->first + segment->second : above->first;
  return {block.address - begin, end - block.end()};
}

void External::add_gap(Size size) {
  if (size != 0) gaps_.insert(size);
}

void External::remove_gap(Size size) {
  if (size != 0) gaps_.erase(gaps_.find(size));
}

Address External::allocate_segment(Size size) {
  if (size == 0) return 0;
  Address const segment = acquire(size);
  if (segment != 0) {
    segments_.emplace(segment, size);
    add_gap(size);
  }
  return segment;
}

bool External::free_segment(Address segment) {
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

void External::verify(Block const& block) const {
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

void External::reject(std::string const& what) const { throw SpecError(name_ + " " + what); }

}  // namespace allocbench

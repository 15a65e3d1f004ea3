// parts/buffers.hpp: blocks that are not split: live ones by address, freed ones by size and age.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "parts/address_map.hpp"

namespace allocbench {

// Live blocks, which have no neighbors. Both calls take O(1) expected steps.
class LoneBlocks {
 public:
  Block insert(Block const& block) {
    live_.insert(block.address, blocks_.put(block));
    return block;
  }

  // Returns the erased block; size 0 if there was none.
  Block erase(Address address) {
    Index const block = live_.erase(address);
    if (block == kNone) return {};
    blocks_.drop(block);
    return blocks_[block];
  }

  // Each block as a segment of its own.
  std::vector<Segment> segments() const {
    std::vector<Segment> all;
    live_.for_each([&](Address address, Index block) {
      all.push_back({address, blocks_[block].size, {blocks_[block]}});
    });
    return all;
  }

 private:
  Slots<Block> blocks_;
  AddressMap live_;
};

// Whole buffers that may be used again or go back to the device. Every call takes O(log n) time.
class FreedBuffers {
 public:
  bool empty() const { return by_free_.empty(); }
  std::size_t count() const { return by_free_.size(); }
  Size bytes() const { return bytes_; }
  Size largest() const { return empty() ? 0 : by_size_.rbegin()->first.first; }
  std::uint64_t frees() const { return frees_; }  // since the beginning
  // The number of frees before that of the oldest buffer, if there is one.
  std::uint64_t oldest() const { return by_free_.begin()->first; }

  void add(Address address, Size size) {
    bytes_ += size;
    by_size_.emplace(std::pair(size, frees_), address);
    by_free_.emplace(frees_++, size);
  }

  // The smallest size of at least `least` bytes, or 0.
  Size fit(Size least) const {
    auto const found = by_size_.lower_bound({least, 0});
    return found == by_size_.end() ? 0 : found->first.first;
  }

  // Takes the buffer of exactly this size that was freed first; there must be one.
  Block take(Size size) { return take(by_size_.lower_bound({size, 0})); }
  Block take_oldest() {
    auto const [free, size] = *by_free_.begin();
    return take(by_size_.find({size, free}));
  }

  void append_to(std::vector<Segment>& segments) const {
    for (auto const& [key, address] : by_size_)
      segments.push_back({address, key.first, {{address, key.first, 0}}});
  }

 private:
  using BySize = std::map<std::pair<Size, std::uint64_t>, Address>;

  Block take(BySize::iterator found) {
    auto const [key, address] = *found;
    bytes_ -= key.first;
    by_free_.erase(key.second);
    by_size_.erase(found);
    return {address, key.first};
  }

  BySize by_size_;
  std::map<std::uint64_t, Size> by_free_;
  Size bytes_ = 0;
  std::uint64_t frees_ = 0;
};

}  // namespace allocbench

// parts/best_fit_pool.cpp: segments of blocks that split, coalesce, and are found by best fit.
// SPDX-License-Identifier: Apache-2.0
#include "parts/best_fit_pool.hpp"

#include <iterator>

#include "core/errors.hpp"

namespace allocbench {

void BestFitPool::add(Address address, Size size, bool join) {
  Index const node = nodes_.create(address, size);
  auto const after = segments_.lower_bound(address);
  if (join && after != segments_.begin()) {
    auto& [start, extent] = *std::prev(after);
    if (start + extent.size == address) {
      extent.size += size;
      Index last = extent.first;
      while (nodes_[last].next != kNone) last = nodes_[last].next;
      nodes_[last].next = node;
      nodes_[node].previous = last;
      free_.insert(nodes_[last].block.allocated() ? node : absorbed_into(last));
      return;
    }
  }
  segments_.emplace(address, Extent{size, node});
  free_.insert(node);
}

Block BestFitPool::take(Index node, Size keep, Size requested) {
  free_.remove(node);
  if (Size const size = nodes_[node].block.size; keep < size) {
    Index const rest = nodes_.create(nodes_[node].block.address + keep, size - keep);
    Index const next = nodes_[node].next;
    nodes_[rest].previous = node;
    nodes_[rest].next = next;
    if (next != kNone) nodes_[next].previous = rest;
    nodes_[node].next = rest;
    nodes_[node].block.size = keep;
    free_.insert(rest);
  }
  Block& block = nodes_[node].block;
  block.requested = requested;
  allocated_.insert(block.address, node);
  return block;
}

Block BestFitPool::give(Address address) {
  Index node = allocated_.erase(address);
  if (node == kNone) return {};
  Block const given = nodes_[node].block;
  nodes_[node].block.requested = 0;
  Index const next = nodes_[node].next;
  if (next != kNone && !nodes_[next].block.allocated()) {
    free_.remove(next);
    absorb_next(node);
  }
  Index const previous = nodes_[node].previous;
  if (previous != kNone && !nodes_[previous].block.allocated()) node = absorbed_into(previous);
  free_.insert(node);
  return given;
}

// Takes the free block `previous` out of its bin and lets it absorb the one behind it.
Index BestFitPool::absorbed_into(Index previous) {
  free_.remove(previous);
  absorb_next(previous);
  return previous;
}

// Neither `node` nor the free block behind it, which vanishes into it, is in a bin.
void BestFitPool::absorb_next(Index node) {
  Index const gone = nodes_[node].next;
  nodes_[node].block.size += nodes_[gone].block.size;
  Index const beyond = nodes_[gone].next;
  nodes_[node].next = beyond;
  if (beyond != kNone) nodes_[beyond].previous = node;
  nodes_.drop(gone);
}

std::vector<BestFitPool::Region> BestFitPool::idle() const {
  std::vector<Region> found;
  for (auto const& [address, extent] : segments_) {
    Block const& first = nodes_[extent.first].block;
    if (!first.allocated() && first.size == extent.size) found.push_back({address, extent.size});
  }
  return found;
}

void BestFitPool::drop(Address segment) {
  auto const found = segments_.find(segment);
  free_.remove(found->second.first);
  nodes_.drop(found->second.first);
  segments_.erase(found);
}

std::vector<Segment> BestFitPool::snapshot() const {
  std::vector<Segment> all;
  for (auto const& [address, extent] : segments_) {
    Segment& segment = all.emplace_back(Segment{address, extent.size, {}});
    for (Index node = extent.first; node != kNone; node = nodes_[node].next)
      segment.blocks.push_back(nodes_[node].block);
  }
  return all;
}

void BestFitPool::check() const {
  std::size_t allocated = 0;
  for (auto const& [address, extent] : segments_) {
    Index previous = kNone;
    for (Index node = extent.first; node != kNone; previous = node, node = nodes_[node].next) {
      Block const& block = nodes_[node].block;
      require(nodes_[node].previous == previous, "a block's neighbours know one another");
      if (block.allocated()) {
        ++allocated;
        require(allocated_.find(block.address) == node, "an allocated block is found by address");
      } else {
        require(free_.contains(node), "a free block is in its bin");
        require(previous == kNone || nodes_[previous].block.allocated(),
                "free neighbours have coalesced");
      }
    }
  }
  require(allocated == allocated_.size(), "the address map holds the allocated blocks alone");
}

}  // namespace allocbench

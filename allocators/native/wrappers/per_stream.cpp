// wrappers/per_stream.cpp: one instance of the inner allocator for each stream.
// SPDX-License-Identifier: Apache-2.0
#include "wrappers/per_stream.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace allocbench {

PerStream::PerStream(Device& device, Options const&, MakeInner make_inner)
    : Allocator(device), make_inner_(std::move(make_inner)) {
  instance_of(0);
}

Block PerStream::do_allocate(Size requested, Stream stream) {
  Index const own = instance_of(stream);
  Block block = instances_[own]->try_allocate(requested, stream);
  if (block.size == 0 && trim_all_but(own)) {
    count_retry();
    block = instances_[own]->try_allocate(requested, stream);
  }
  if (block.size != 0) owner_.insert(block.address, own);
  return block;
}

Block PerStream::do_deallocate(Address address, Stream stream) {
  Index const owner = owner_.erase(address);
  return owner == kNone ? Block{} : instances_[owner]->try_deallocate(address, stream);
}

void PerStream::do_trim() {
  for (auto const& instance : instances_) instance->trim();
}

void PerStream::do_trim_pool(PoolId pool) {
  for (auto const& instance : instances_) instance->trim(pool);
}

void PerStream::do_describe_pools(std::vector<PoolTraits> const& traits) {
  traits_ = traits;
  for (auto const& instance : instances_) instance->describe_pools(traits);
}

void PerStream::do_pool_event(Op op, PoolId pool) {
  pool_events_.emplace_back(op, pool);
  for (auto const& instance : instances_) instance->pool_event(op, pool);
}

void PerStream::do_change_settings(std::string const& conf) {
  for (auto const& instance : instances_) instance->change_settings(conf);
  changes_.emplace_back([conf](Allocator& instance) { instance.change_settings(conf); });
}

void PerStream::do_change_memory_fraction(double fraction) {
  for (auto const& instance : instances_) instance->change_memory_fraction(fraction);
  changes_.emplace_back(
      [fraction](Allocator& instance) { instance.change_memory_fraction(fraction); });
}

void PerStream::do_step() {
  for (auto const& instance : instances_) instance->step();
}

std::vector<Segment> PerStream::do_snapshot() const {
  std::vector<Segment> all;
  for (auto const& instance : instances_)
    std::ranges::move(instance->snapshot(), std::back_inserter(all));
  return all;
}

Size PerStream::do_largest_free() const {
  Size largest = 0;
  for (auto const& instance : instances_) largest = std::max(largest, instance->largest_free());
  return largest;
}

void PerStream::do_check() const {
  std::uint64_t live = 0;
  for (auto const& instance : instances_) {
    instance->check();
    Stats const inside = instance->stats();
    live += inside.allocations - inside.frees;
  }
  require(live == owner_.size(), "every live block has an owning instance");
  std::map<Address, Index> shown;
  for (Index instance = 0; instance < instances_.size(); ++instance)
    for (Segment const& segment : instances_[instance]->snapshot())
      for (Block const& block : segment.blocks)
        if (block.allocated()) shown.emplace(block.address, instance);
  owner_.for_each([&](Address address, Index owner) {
    auto const entry = shown.find(address);
    require(entry != shown.end() && entry->second == owner,
            "a live block belongs to its owning instance");
  });
}

Counters PerStream::do_counters() const {
  Counters sums = instances_.front()->counters();  // all instances have the same counters
  for (std::size_t instance = 1; instance < instances_.size(); ++instance) {
    Counters const more = instances_[instance]->counters();
    for (std::size_t counter = 0; counter < sums.size(); ++counter)
      sums[counter].second += more[counter].second;
  }
  return sums;
}

std::string PerStream::do_summary() const {
  std::map<Stream, Index> const in_order(by_stream_.begin(), by_stream_.end());
  std::string text;
  for (auto const& [stream, instance] : in_order) {
    std::string const inside = instances_[instance]->summary();
    if (inside.empty()) continue;
    if (!text.empty()) text += "\n";
    text += "stream " + std::to_string(without_pool(stream)) + ":\n" + inside;
  }
  return text;
}

Index PerStream::instance_of(Stream stream) {
  if (auto const entry = by_stream_.find(stream); entry != by_stream_.end()) return entry->second;
  Allocator& instance = *instances_.emplace_back(make_inner_());
  enclose(instance);
  instance.describe_pools(traits_);
  for (auto const& [op, pool] : pool_events_) instance.pool_event(op, pool);
  for (auto const& change : changes_) change(instance);
  return by_stream_[stream] = static_cast<Index>(instances_.size() - 1);
}

bool PerStream::trim_all_but(Index kept) {
  Size const before = counted().reserved.current;
  for (Index instance = 0; instance < instances_.size(); ++instance)
    if (instance != kept) instances_[instance]->trim();
  return counted().reserved.current < before;
}

}  // namespace allocbench

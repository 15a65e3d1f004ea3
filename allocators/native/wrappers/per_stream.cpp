// wrappers/per_stream.cpp: one instance of the inner allocator for each stream.
// SPDX-License-Identifier: Apache-2.0
#include "wrappers/per_stream.hpp"

#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace allocbench {

PerStream::PerStream(Device& device, Options const&, MakeInner make_inner)
    : Allocator(device), make_inner_(std::move(make_inner)) {
  instance_of(0);
}

PrivatePools const& PerStream::pools() const { return *pools_; }

void PerStream::share_pools(std::shared_ptr<PrivatePools> const& pools) {
  pools_ = pools;
  instances_.use_all([&](Allocator& one) { serving_pools(one).share_pools(pools); });
}

void PerStream::describe_pools(std::vector<PoolTraits> const& traits) {
  std::scoped_lock const guard(lock());
  pools_->describe(traits);
}

void PerStream::pool_event(Op op, PoolId pool) {
  std::scoped_lock const guard(lock());
  pools_->apply(op, pool);
  for (Index const instance : by_pool_[pool]) instances_.use(instance);
}

// An instance of another pool may have frees to catch up on.
void PerStream::trim_pool(PoolId pool) {
  trim_by([&] {
    for (Index const instance : by_pool_[pool]) instances_.use(instance);
    std::set<Index> const in_order(instances_.untrimmed().begin(), instances_.untrimmed().end());
    for (Index const instance : in_order) serving_pools(instances_.use(instance)).trim_pool(pool);
  });
}

void PerStream::change_settings(std::string const& conf) {
  change([conf](LiveSettings& settings) { settings.change_settings(conf); });
}

void PerStream::change_memory_fraction(double fraction) {
  change([fraction](LiveSettings& settings) { settings.change_memory_fraction(fraction); });
}

void PerStream::change(std::function<void(LiveSettings&)> const& how) {
  std::scoped_lock const guard(lock());
  instances_.use_all([&](Allocator& one) { how(live_settings(one)); });
  changes_.push_back(how);
}

Block PerStream::do_allocate(Size requested, Stream stream) {
  Index const own = instance_of(stream);
  Block block = instances_.use(own).try_allocate(requested, stream);
  if (block.size == 0 && trim_all_but(own)) {
    count_retry();
    block = instances_.use(own).try_allocate(requested, stream);
  }
  if (block.size != 0) owner_.insert(block.address, own);
  return block;
}

Block PerStream::do_deallocate(Address address, Stream stream) {
  Index const owner = owner_.erase(address);
  return owner == kNone ? Block{} : instances_.use(owner).try_deallocate(address, stream);
}

void PerStream::do_trim() {
  instances_.trim([](Index) { return true; });
}

void PerStream::do_step() {
  instances_.use_all([](Allocator& one) { one.step(); });
}

std::vector<Segment> PerStream::do_snapshot() const {
  std::vector<Segment> all;
  instances_.add_to(all);
  return all;
}

void PerStream::do_check() const {
  std::uint64_t live = 0;
  instances_.check();
  for (Index instance = 0; instance < instances_.size(); ++instance) {
    Stats const inside = instances_[instance].stats();
    live += inside.allocations - inside.frees;
  }
  require(live == owner_.size(), "every live block has an owning instance");
  std::map<Address, Index> shown;
  for (Index instance = 0; instance < instances_.size(); ++instance)
    for (Segment const& segment : instances_[instance].snapshot())
      for (Block const& block : segment.blocks)
        if (block.allocated()) shown.emplace(block.address, instance);
  owner_.for_each([&](Address address, Index owner) {
    auto const entry = shown.find(address);
    require(entry != shown.end() && entry->second == owner,
            "a live block belongs to its owning instance");
  });
}

Counters PerStream::do_counters() const {
  Counters sums;
  instances_.add_to(sums);
  return sums;
}

std::string PerStream::do_summary() const {
  std::map<Stream, Index> const in_order(by_stream_.begin(), by_stream_.end());
  std::string text;
  for (auto const& [stream, instance] : in_order) {
    std::string const inside = instances_[instance].summary();
    if (inside.empty()) continue;
    if (!text.empty()) text += "\n";
    text += "stream " + std::to_string(without_pool(stream)) + ":\n" + inside;
  }
  return text;
}

Index PerStream::instance_of(Stream stream) {
  if (stream == last_stream_) return last_instance_;
  last_stream_ = stream;
  if (auto const entry = by_stream_.find(stream); entry != by_stream_.end())
    return last_instance_ = entry->second;
  auto made = make_inner_();
  enclose(*made);
  serving_pools(*made).share_pools(pools_);
  for (auto const& change : changes_) change(live_settings(*made));
  last_instance_ = by_stream_[stream] = instances_.add(std::move(made));
  by_pool_[pool_of(stream)].push_back(last_instance_);
  return last_instance_;
}

bool PerStream::trim_all_but(Index kept) {
  Size const before = counted().reserved.current;
  instances_.trim([kept](Index instance) { return instance != kept; });
  return counted().reserved.current < before;
}

}  // namespace allocbench

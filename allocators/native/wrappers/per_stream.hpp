// wrappers/per_stream.hpp: one instance of the inner allocator for each stream.
// SPDX-License-Identifier: Apache-2.0
//
// A request goes to the instance of its stream. A free goes to the instance that handed the block
// out, whichever stream it is on. If a request fails and a trim of the other instances returns any
// memory to the device, the request is retried once and counted as a retry.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/abilities.hpp"
#include "parts/address_map.hpp"
#include "wrappers/pool_instances.hpp"
#include "wrappers/wrapper.hpp"

namespace allocbench {

class PerStream final : public Allocator, public ServesPools, public LiveSettings {
 public:
  static constexpr WrapperInfo wrapper = {
      .name = "per_stream",
      .summary = "one instance per stream, so that streams never share a block",
  };

  PerStream(Device& device, Options const&, MakeInner make_inner)
      : Allocator(device), make_inner_(std::move(make_inner)) {
    instance_of(0);
  }

  StrategyInfo const& info() const override { return instances_[0].info(); }

  PrivatePools const& pools() const override { return *pools_; }

  void share_pools(std::shared_ptr<PrivatePools> const& pools) override {
    pools_ = pools;
    instances_.use_all([&](Allocator& one) { serving_pools(one).share_pools(pools); });
  }

  void describe_pools(std::vector<PoolTraits> const& traits) override {
    std::scoped_lock const guard(lock());
    pools_->describe(traits);
  }

  void pool_event(Op op, PoolId pool) override {
    std::scoped_lock const guard(lock());
    pools_->apply(op, pool);
    for (Index const instance : by_pool_[pool]) instances_.use(instance);
  }

  // An instance of another pool may have frees to catch up on.
  void trim_pool(PoolId pool) override {
    trim_by([&] {
      for (Index const instance : by_pool_[pool]) instances_.use(instance);
      std::set<Index> const in_order(instances_.untrimmed().begin(), instances_.untrimmed().end());
      for (Index const instance : in_order) serving_pools(instances_.use(instance)).trim_pool(pool);
    });
  }

  void change_settings(std::string const& conf) override {
    change([conf](LiveSettings& settings) { settings.change_settings(conf); });
  }

  void change_memory_fraction(double fraction) override {
    change([fraction](LiveSettings& settings) { settings.change_memory_fraction(fraction); });
  }

 private:
  Block do_allocate(Size requested, Stream stream) override {
    Index const own = instance_of(stream);
    Block block = instances_.use(own).try_allocate(requested, stream);
    if (block.size == 0 && trim_all_but(own)) {
      count_retry();
      block = instances_.use(own).try_allocate(requested, stream);
    }
    if (block.size != 0) owner_.insert(block.address, own);
    return block;
  }

  Block do_deallocate(Address address, Stream stream) override {
    Index const owner = owner_.erase(address);
    return owner == kNone ? Block{} : instances_.use(owner).try_deallocate(address, stream);
  }

  void do_trim() override {
    instances_.trim([](Index) { return true; });
  }

  void do_step() override {
    instances_.use_all([](Allocator& one) { one.step(); });
  }

  bool do_forwards() const override { return true; }

  std::vector<Segment> do_snapshot() const override {
    std::vector<Segment> all;
    instances_.add_to(all);
    return all;
  }

  Size do_largest_free() const override { return instances_.largest_free(); }

  void do_check() const override {
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

  // sums
  Counters do_counters() const override {
    Counters sums;
    instances_.add_to(sums);
    return sums;
  }

  std::string do_summary() const override {
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

  void change(std::function<void(LiveSettings&)> const& how) {
    std::scoped_lock const guard(lock());
    instances_.use_all([&](Allocator& one) { how(live_settings(one)); });
    changes_.push_back(how);
  }

  Index instance_of(Stream stream) {
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

  // true if that returned any memory
  bool trim_all_but(Index kept) {
    Size const before = counted().reserved.current;
    instances_.trim([kept](Index instance) { return instance != kept; });
    return counted().reserved.current < before;
  }

  MakeInner make_inner_;
  std::shared_ptr<PrivatePools> pools_ = std::make_shared<PrivatePools>();
  std::vector<std::function<void(LiveSettings&)>> changes_;  // an instance made later has them too
  Instances instances_;                                      // the first is for stream 0
  std::unordered_map<Stream, Index> by_stream_;
  std::unordered_map<PoolId, std::vector<Index>> by_pool_;
  Stream last_stream_ = ~Stream{0};
  Index last_instance_ = kNone;
  AddressMap owner_;  // address of a live block -> its instance
};

}  // namespace allocbench

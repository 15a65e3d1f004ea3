// wrappers/pool_instances.hpp: an instance of a strategy for each private pool.
// SPDX-License-Identifier: Apache-2.0
//
// The registry makes a PoolInstances of every strategy that does not know private pools. If a
// request of a pool fails, the memory outside of it and in released pools goes back to the device,
// and the request is repeated; a request outside of pools only needs the memory of released ones.
//
// It derives from the strategy, so that a request outside of pools takes one jump more, and what
// the strategy may reserve in all is one number.
#pragma once

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "core/abilities.hpp"
#include "parts/node.hpp"

namespace allocbench {

// There may be thousands of instances. So a trim visits only those that were used since they were
// last trimmed, because the others have nothing to give back, and the largest free block is looked
// up only in those that were used since the last look.
class Instances {
 public:
  Index add(std::unique_ptr<Allocator> made) {
    all_.push_back({std::move(made)});
    auto const added = static_cast<Index>(all_.size() - 1);
    used(added);
    return added;
  }
  std::size_t size() const { return all_.size(); }
  bool empty() const { return all_.empty(); }
  Allocator& operator[](Index instance) const { return *all_[instance].allocator; }
  // For a call that changes the instance, or what it may give back.
  Allocator& use(Index instance) {
    if (all_[instance].trimmed || all_[instance].seen) used(instance);
    return *all_[instance].allocator;
  }
  template <class Call>
  void use_all(Call call) {
    for (Index instance = 0; instance < all_.size(); ++instance) call(use(instance));
  }

  // Trims the instances for which `which(index)` is true, those with the lowest `rank(index)`
  // first.
  template <class Which, class Rank = std::identity>
  void trim(Which which, Rank rank = {}) {
    std::ranges::sort(untrimmed_, {}, rank);
    std::vector<Index> rest;
    for (Index const instance : untrimmed_) {
      One& one = all_[instance];
      if (which(instance)) {
        use(instance).trim();
        one.trimmed = !one.allocator->device().keeps_memory();
      }
      if (!one.trimmed) rest.push_back(instance);
    }
    untrimmed_ = std::move(rest);
  }

  // Those that were used since they were last trimmed.
  std::vector<Index> const& untrimmed() const { return untrimmed_; }

  void add_to(std::vector<Segment>& snapshot) const {
    for (One const& one : all_)
      std::ranges::move(one.allocator->snapshot(), std::back_inserter(snapshot));
  }
  void add_to(Counters& sums) const {  // all instances have the same counters
    for (One const& one : all_) {
      Counters const more = one.allocator->counters();
      if (sums.empty()) sums.resize(more.size());
      for (std::size_t n = 0; n < sums.size(); ++n)
        sums[n] = {more[n].first, sums[n].second + more[n].second};
    }
  }
  Size largest_free() const {
    for (Index const instance : std::exchange(unseen_, {})) {
      One const& one = all_[instance];
      if (auto const old = largest_.find(one.largest); old != largest_.end()) largest_.erase(old);
      largest_.insert(one.largest = one.allocator->largest_free());
      one.seen = true;
    }
    return largest_.empty() ? 0 : *largest_.rbegin();
  }
  void check() const {
    for (One const& one : all_) one.allocator->check();
  }

 private:
  static constexpr Size kUnknown = ~Size{0};

  struct One {
    std::unique_ptr<Allocator> allocator;
    bool trimmed = true;              // not used since the last trim
    mutable bool seen = true;         // not used since `largest` was looked up
    mutable Size largest = kUnknown;  // free block
  };

  void used(Index instance) {
    if (std::exchange(all_[instance].trimmed, false)) untrimmed_.push_back(instance);
    if (std::exchange(all_[instance].seen, false)) unseen_.push_back(instance);
  }

  std::vector<One> all_;
  std::vector<Index> untrimmed_;
  mutable std::vector<Index> unseen_;
  mutable std::multiset<Size> largest_;  // of those that have been looked at
};

// The instances of the private pools, and what is known about the pools.
class InstancesByPool : public Instances {
 public:
  PrivatePools& pools() const { return *pools_; }
  void share(std::shared_ptr<PrivatePools> const& pools) { pools_ = pools; }

  // For a call that changes the instance, or what it may give back. Null: the pool has none.
  Allocator* find(PoolId pool) {
    auto const entry = by_pool_.find(pool);
    return entry == by_pool_.end() ? nullptr : &use(entry->second);
  }
  Allocator& add(PoolId pool, std::unique_ptr<Allocator> made) {
    pool_of_.push_back(pool);
    return (*this)[by_pool_[pool] = Instances::add(std::move(made))];
  }
  void apply(Op op, PoolId pool) {
    pools_->apply(op, pool);
    find(pool);
  }
  void trim_pool(PoolId pool) {
    if (Allocator* const instance = find(pool); instance && pools_->released(pool))
      instance->trim();
  }
  void trim_released() {
    if (!pools_->any_released()) return;
    trim([this](Index instance) { return pools_->released(pool_of_[instance]); },
         [this](Index instance) { return pool_of_[instance]; });
  }

 private:
  std::shared_ptr<PrivatePools> pools_ = std::make_shared<PrivatePools>();
  std::map<PoolId, Index> by_pool_;
  std::vector<PoolId> pool_of_;  // by instance
};

template <class S>
class PoolInstances final : public S, public ServesPools {
 public:
  PoolInstances(Device& device, Options const& given) : S(device, given), given_(given) {}

  PrivatePools const& pools() const override { return inside_.pools(); }
  void share_pools(std::shared_ptr<PrivatePools> const& pools) override { inside_.share(pools); }
  void describe_pools(std::vector<PoolTraits> const& traits) override {
    std::scoped_lock const guard(this->lock());
    inside_.pools().describe(traits);
  }
  void pool_event(Op op, PoolId pool) override {
    std::scoped_lock const guard(this->lock());
    inside_.apply(op, pool);
  }
  void trim_pool(PoolId pool) override {
    this->trim_by([this, pool] { inside_.trim_pool(pool); });
  }

 private:
  Block do_allocate(Size requested, Stream stream) override {
    bool const alone = pool_of(stream) == 0 && inside_.empty();
    return alone ? S::do_allocate(requested, stream) : allocate_beside(requested, stream);
  }
  Block do_deallocate(Address address, Stream stream) override {
    bool const outside = pool_of(stream) == 0;
    return outside ? S::do_deallocate(address, stream) : deallocate_in_pool(address, stream);
  }
  void do_trim() override {
    S::do_trim();
    inside_.trim_released();
  }
  void do_step() override {
    S::do_step();
    inside_.use_all([](Allocator& instance) { instance.step(); });
  }
  std::vector<Segment> do_snapshot() const override {
    auto segments = S::do_snapshot();
    inside_.add_to(segments);
    return segments;
  }
  Size do_largest_free() const override {
    return std::max(S::do_largest_free(), inside_.largest_free());
  }
  void do_check() const override {
    S::do_check();
    inside_.check();
  }
  Counters do_counters() const override {
    Counters sums = S::do_counters();
    inside_.add_to(sums);
    return sums;
  }

  // These are not inlined: a request outside of pools would have to save registers for them.
  [[gnu::noinline]] Block allocate_beside(Size requested, Stream stream) {
    if (pool_of(stream) != 0) return allocate_in_pool(requested, stream);
    Block const block = S::do_allocate(requested, stream);
    if (block.size != 0) return block;
    Size const before = this->counted().reserved.current;
    inside_.trim_released();
    return retries(before) ? S::do_allocate(requested, stream) : block;
  }
  [[gnu::noinline]] Block deallocate_in_pool(Address address, Stream stream) {
    Allocator* const instance = inside_.find(pool_of(stream));
    return instance ? instance->try_deallocate(address, without_pool(stream)) : Block{};
  }
  Block allocate_in_pool(Size requested, Stream stream) {
    PoolId const pool = pool_of(stream);
    Allocator* instance = inside_.find(pool);
    if (instance == nullptr) {
      auto made = std::make_unique<S>(this->device(), given_);
      this->enclose(*made);
      instance = &inside_.add(pool, std::move(made));
    }
    Block const block = instance->try_allocate(requested, without_pool(stream));
    if (block.size != 0 || !this->returns_memory()) return block;
    Size const before = this->counted().reserved.current;
    do_trim();
    if (!retries(before)) return block;
    return inside_.find(pool)->try_allocate(requested, without_pool(stream));
  }

  // Whether to repeat a request, because memory went back to the device. Counts the retry.
  bool retries(Size before) {
    if (this->counted().reserved.current == before) return false;
    this->count_retry();
    return true;
  }

  Options given_;
  InstancesByPool inside_;
};

}  // namespace allocbench

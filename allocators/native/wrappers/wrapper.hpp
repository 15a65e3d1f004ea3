// wrappers/wrapper.hpp: the base class of allocators that wrap another allocator.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/abilities.hpp"

namespace allocbench {

// What a wrapper says about itself.
struct WrapperInfo {
  std::string_view name;
  std::string_view summary;
  std::span<Option const> options = {};
};

using MakeInner = std::function<std::unique_ptr<Allocator>()>;

// Passes every call on to the inner allocator; a wrapper overrides the calls that it observes. Each
// layer has its own statistics, which agree: reserved bytes are counted in all layers at once.
class Wrapper : public Allocator, public ServesPools, public LiveSettings {
 public:
  Wrapper(Device& device, MakeInner const& make_inner) : Allocator(device), inner_(make_inner()) {
    enclose(*inner_);
  }
  // The info of the strategy, because a wrapper is not a strategy.
  StrategyInfo const& info() const override { return inner_->info(); }
  // From outside for inspection only: calls on the inner allocator bypass the wrapper.
  Allocator& inner() const { return *inner_; }

  PrivatePools const& pools() const override { return serving_pools(*inner_).pools(); }
  void share_pools(std::shared_ptr<PrivatePools> const& pools) override {
    serving_pools(*inner_).share_pools(pools);
  }
  void describe_pools(std::vector<PoolTraits> const& traits) override {
    std::scoped_lock const guard(lock());
    serving_pools(*inner_).describe_pools(traits);
  }
  void pool_event(Op op, PoolId pool) override {
    std::scoped_lock const guard(lock());
    do_pool_event(op, pool);
  }
  void trim_pool(PoolId pool) override {
    trim_by([&] { do_trim_pool(pool); });
  }
  void change_settings(std::string const& conf) override {
    std::scoped_lock const guard(lock());
    live_settings(*inner_).change_settings(conf);
  }
  void change_memory_fraction(double fraction) override {
    std::scoped_lock const guard(lock());
    live_settings(*inner_).change_memory_fraction(fraction);
  }

 protected:
  Block do_allocate(Size requested, Stream stream) override {
    return inner_->try_allocate(requested, stream);
  }
  Block do_deallocate(Address address, Stream stream) override {
    return inner_->try_deallocate(address, stream);
  }
  void do_trim() override { inner_->trim(); }
  virtual void do_trim_pool(PoolId pool) { serving_pools(*inner_).trim_pool(pool); }
  virtual void do_pool_event(Op op, PoolId pool) { serving_pools(*inner_).pool_event(op, pool); }
  void do_step() override { inner_->step(); }
  void do_check() const override {
    inner_->check();
    Stats const inside = inner_->stats();
    require(inside.requested.current == counted().requested.current &&
                inside.allocated.current == counted().allocated.current &&
                inside.reserved.current == counted().reserved.current,
            "a wrapper and the allocator inside it count the same bytes");
  }
  std::string do_summary() const override { return inner_->summary(); }
  std::vector<Segment> do_snapshot() const override { return inner_->snapshot(); }
  Size do_largest_free() const override { return inner_->largest_free(); }

 private:
  bool do_forwards() const override { return true; }
  Counters do_counters() const override { return inner_->counters(); }

  std::unique_ptr<Allocator> inner_;
};

// The outermost layer of type `W`, or null.
template <class W>
W const* find_layer(Allocator const& allocator) {
  Allocator const* layer = &allocator;
  while (layer != nullptr) {
    if (auto const* match = dynamic_cast<W const*>(layer)) return match;
    auto const* wrapper = dynamic_cast<Wrapper const*>(layer);
    layer = wrapper == nullptr ? nullptr : &wrapper->inner();
  }
  return nullptr;
}

}  // namespace allocbench

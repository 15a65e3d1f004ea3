// wrappers/per_stream.hpp: one instance of the inner allocator for each stream.
// SPDX-License-Identifier: Apache-2.0
//
// A request goes to the instance of its stream. A free goes to the instance that handed the block
// out, whichever stream it is on. If a request fails and a trim of the other instances returns any
// memory to the device, the request is retried once and counted as a retry.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/abilities.hpp"
#include "parts/address_map.hpp"
#include "parts/instances.hpp"
#include "wrappers/wrapper.hpp"

namespace allocbench {

class PerStream final : public Allocator, public ServesPools, public LiveSettings {
 public:
  static constexpr WrapperInfo wrapper = {
      .name = "per_stream",
      .summary = "one instance per stream, so that streams never share a block",
  };

  PerStream(Device& device, Options const&, MakeInner make_inner);
  StrategyInfo const& info() const override { return instances_[0].info(); }

  PrivatePools const& pools() const override;
  void share_pools(std::shared_ptr<PrivatePools> const& pools) override;
  void describe_pools(std::vector<PoolTraits> const& traits) override;
  void pool_event(Op op, PoolId pool) override;
  void trim_pool(PoolId pool) override;
  void change_settings(std::string const& conf) override;
  void change_memory_fraction(double fraction) override;

 private:
  Block do_allocate(Size requested, Stream stream) override;
  Block do_deallocate(Address address, Stream stream) override;
  void do_trim() override;
  void do_step() override;
  bool do_forwards() const override { return true; }
  std::vector<Segment> do_snapshot() const override;
  Size do_largest_free() const override { return instances_.largest_free(); }
  void do_check() const override;
  Counters do_counters() const override;  // sums
  std::string do_summary() const override;

  void change(std::function<void(LiveSettings&)> const& how);
  Index instance_of(Stream stream);
  bool trim_all_but(Index kept);  // true if that returned any memory

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

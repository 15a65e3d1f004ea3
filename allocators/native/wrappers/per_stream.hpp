// wrappers/per_stream.hpp: one instance of the inner allocator for each stream.
// SPDX-License-Identifier: Apache-2.0
//
// A request goes to the instance of its stream. A free goes to the instance that handed the block
// out, whichever stream it is on. If a request fails and a trim of the other instances returns any
// memory to the device, the request is retried once and counted as a retry.
#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "parts/address_map.hpp"
#include "wrappers/wrapper.hpp"

namespace allocbench {

class PerStream final : public Allocator {
 public:
  static constexpr WrapperInfo wrapper = {
      .name = "per_stream",
      .summary = "one instance per stream, so that streams never share a block",
  };

  PerStream(Device& device, Options const&, MakeInner make_inner);
  StrategyInfo const& info() const override { return instances_.front()->info(); }

 private:
  Block do_allocate(Size requested, Stream stream) override;
  Block do_deallocate(Address address, Stream stream) override;
  void do_trim() override;
  void do_trim_pool(PoolId pool) override;
  void do_describe_pools(std::vector<PoolTraits> const& traits) override;
  void do_pool_event(Op op, PoolId pool) override;
  void do_change_settings(std::string const& conf) override;
  void do_change_memory_fraction(double fraction) override;
  void do_step() override;
  bool do_forwards() const override { return true; }
  std::vector<Segment> do_snapshot() const override;
  Size do_largest_free() const override;
  void do_check() const override;
  Counters do_counters() const override;  // sums
  std::string do_summary() const override;

  Index instance_of(Stream stream);
  bool trim_all_but(Index kept);  // true if that returned any memory

  MakeInner make_inner_;
  std::vector<PoolTraits> traits_;                        // of private pools
  std::vector<std::pair<Op, PoolId>> pool_events_;        // an instance made later knows them too
  std::vector<std::function<void(Allocator&)>> changes_;  // likewise
  std::vector<std::unique_ptr<Allocator>> instances_;     // the first is for stream 0
  std::unordered_map<Stream, Index> by_stream_;
  AddressMap owner_;  // address of a live block -> its instance
};

}  // namespace allocbench

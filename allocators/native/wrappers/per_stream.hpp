// wrappers/per_stream.hpp: one instance of the allocator inside for each stream.
// SPDX-License-Identifier: Apache-2.0
//
// A request goes to the instance of its stream, a free to the instance that handed the block out,
// whatever its stream. A request that fails is tried once more when a trim of the other instances
// gave anything back to the device, and counts as a retry.
#pragma once

#include <unordered_map>

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
  void do_step() override;
  bool do_forwards() const override { return true; }
  std::vector<Segment> do_snapshot() const override;
  Size do_largest_free() const override;
  void do_check() const override;
  Counters do_counters() const override;  // sums
  std::string do_summary() const override;

  Index instance_of(Stream stream);
  bool trim_all_but(Index kept);  // did that give anything back?

  MakeInner make_inner_;
  std::vector<std::unique_ptr<Allocator>> instances_;  // the first is stream 0's
  std::unordered_map<Stream, Index> by_stream_;
  AddressMap owner_;  // address of a live block -> its instance
};

}  // namespace allocbench

// strategies/xla_vmm.hpp: XLA's allocator for virtual memory.
// SPDX-License-Identifier: Apache-2.0
//
// Sizes are rounded up to the granularity of the device. Each block has addresses and memory of its
// own. A freed block waits in a queue, since kernels may still use it. A request takes the block of
// its rounded size that has waited longest; work on the same stream comes later anyway. If there is
// none, it gets new memory, up to a fraction of the device. When that is refused, the blocks that
// the GPU no longer uses go back to the device, and if this is not enough, those that have waited
// longest, until they have 1.1 times the size. So the queue is a cache that ends when memory is
// short. A request and a free take O(log n) time for n blocks in the queue.
//
// How far the GPU is depends on time in XLA. Here, it has finished what was freed before the last
// step. Source: xla/stream_executor/device_address_vmm_allocator.cc of XLA, August 2026.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/allocator.hpp"
#include "parts/buffers.hpp"

namespace allocbench {

class XlaVmm : public Allocator {
 public:
  static constexpr Option options[] = {
      {"memory_fraction", OptionType::kNumber, "1",
       "fraction of the device, above 0 and up to 1, that may be mapped; in XLA 0.75 or "
       "XLA_PYTHON_CLIENT_MEM_FRACTION"},
  };
  static constexpr StrategyInfo strategy = {
      .name = "xla_vmm",
      .summary = "virtual memory for each block; freed blocks serve requests of their size (XLA)",
      .worst_case = "inside a block: 2 MiB; outside: all freed blocks, until memory is short",
      .reference = "DeviceAddressVmmAllocator of XLA",
      .options = options,
      .largest_request = [](Size capacity) { return round_down(capacity, 2 * kMiB); },
      .exemption = "sizes are rounded up to the granularity of virtual memory, 2 MiB",
  };

  XlaVmm(Device& device, Options const& given) : Allocator(device) {
    double const fraction = given.number("memory_fraction");
    if (!(fraction > 0 && fraction <= 1))
      given.reject("memory_fraction", "must be above 0 and at most 1");
    if (fraction < 1) most_ = static_cast<Size>(fraction * static_cast<double>(device.capacity()));
  }
  StrategyInfo const& info() const override { return strategy; }

 protected:
  [[gnu::flatten]] Block do_allocate(Size requested, Stream) override {
    if (!device().has(requested)) return {};
    Size const size = round_up(requested, device().granularity());
    Address const address =
        queue_.fit(size) == size ? queue_.take(size).address : create_or_return(size);
    return address == 0 ? Block{} : blocks_.insert({address, size, requested});
  }

  [[gnu::flatten]] Block do_deallocate(Address address, Stream) override {
    Block const block = blocks_.erase(address);
    if (block.size != 0) queue_.add(address, block.size);
    return block;
  }

  void do_step() override { reached_ = queue_.frees(); }
  void do_trim() override {
    if (returns_memory()) return_oldest(queue_.bytes());
  }
  Size do_largest_free() const override { return queue_.largest(); }

  std::vector<Segment> do_snapshot() const override {
    auto all = blocks_.segments();
    queue_.append_to(all);
    return all;
  }

 private:
  Address create_or_return(Size size) {
    Address address = create(size);
    if (address != 0 || queue_.empty() || !returns_memory()) return address;
    count_retry();
    while (!queue_.empty() && queue_.oldest() < reached_) return_oldest(1);
    address = create(size);
    if (address != 0) return address;
    return_oldest(size + size / 10);
    return create(size);
  }

  Address create(Size size) {
    Size const wanted = counted().reserved.current + size;
    if (most_ ? wanted > *most_ : !device().has(wanted)) return 0;
    Address const address = reserve(size);
    if (address == 0 || map(address, size, size)) return address;
    unreserve(address);
    return 0;
  }

  void return_oldest(Size least) {
    for (Size returned = 0; !queue_.empty() && returned < least;) {
      Block const block = queue_.take_oldest();
      unmap(block.address, block.size, block.size);
      unreserve(block.address);
      returned += block.size;
    }
  }

  std::optional<Size> most_;  // bytes that may be mapped, if not all of the device
  LoneBlocks blocks_;
  FreedBuffers queue_;         // blocks that were freed
  std::uint64_t reached_ = 0;  // frees that the GPU has reached
};

}  // namespace allocbench

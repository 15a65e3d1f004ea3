// graph_memory.hpp: the memory of captured graphs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "core/device.hpp"
#include "registry.hpp"

namespace allocbench {

// A graph uses the addresses that were handed out while it was captured each time it is launched,
// also those of blocks that were freed since. So its memory must neither go back to the device nor
// move while the graph lives, which few strategies promise. Whatever the program's strategy is, the
// memory of graphs comes from `caching` with its defaults, which is what PyTorch does too, on a
// device that takes nothing back.
class GraphMemory {
 public:
  explicit GraphMemory(Device& device)
      : device_(device), allocator_(make({{"caching", {}}}, device_)) {}

  Allocator& allocator() { return *allocator_; }
  Size reserved() const { return device_.reserved(); }  // bytes
  // No graph uses the memory any more: what is free may go back from now on.
  void release() { device_.keep_memory(false); }

 private:
  class Keeping final : public Device {
   public:
    explicit Keeping(Device& device) : device_(device) { keep_memory(true); }
    ~Keeping() override { device_.free_all(this); }
    Size capacity() const override { return device_.capacity(); }
    Size granularity() const override { return device_.granularity(); }
    bool simulated() const override { return device_.simulated(); }
    std::string cost_source() const override { return device_.cost_source(); }

   private:
    Address do_allocate(Size size, Size, double&) override { return device_.allocate(size, this); }
    bool do_free(Address segment, Size, double&) override {
      device_.free(segment);
      return true;
    }
    Address do_reserve(Size, double&) override { return 0; }
    bool do_unreserve(Address, Size, double&) override { return false; }
    bool do_map(Address, Size, Size, double&) override { return false; }
    bool do_unmap(Address, Size, double&) override { return false; }

    Device& device_;
  };

  Keeping device_;
  std::unique_ptr<Allocator> allocator_;
};

}  // namespace allocbench

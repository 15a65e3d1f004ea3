// graph_memory.hpp: the memory of captured graphs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "core/device.hpp"
#include "registry.hpp"

namespace allocbench {

// Each launch of a graph uses the addresses of its capture, including those of blocks that have
// been freed since. So its memory must neither move nor return to the device while the graph
// exists, which few strategies guarantee. For every strategy of the program, the memory of graphs
// therefore comes from `caching` with its defaults, as in PyTorch, on a device that keeps all
// memory.
class GraphMemory {
 public:
  explicit GraphMemory(Device& device)
      : device_(device), allocator_(make({{"caching", {}}}, device_)) {}

  Allocator& allocator() { return *allocator_; }
  Size reserved() const { return device_.reserved(); }  // bytes
  // The graphs have been released: from now on, free memory may return to the device.
  void release() { device_.keep_memory(false); }

 private:
  // Passes calls on to a device, but keeps freed memory until `release`.
  class KeepingDevice final : public Device {
   public:
    explicit KeepingDevice(Device& device) : device_(device) { keep_memory(true); }
    ~KeepingDevice() override { device_.free_all(this); }
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

  KeepingDevice device_;
  std::unique_ptr<Allocator> allocator_;
};

}  // namespace allocbench

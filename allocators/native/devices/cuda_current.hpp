// devices/cuda_current.hpp: calls to the driver in the context of a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "devices/cuda.hpp"

namespace allocbench {

// While it exists, a context is current on this thread, by default that of the device, and no call
// invalidates the capture of a graph.
class CudaDevice::Current {
 public:
  explicit Current(CudaDevice& device) : Current(device, device.context_) {}
  Current(CudaDevice& device, cuda::Context context) : device_(device) {
    cuda::Driver const& driver = device.driver_;
    cuda::Context current = nullptr;
    entered_ = device.noted(driver.context_current.name, driver.context_current(&current));
    if (entered_ && current != context) {
      entered_ = device.noted(driver.context_push.name, driver.context_push(context));
      pushed_ = entered_;
    }
    if (entered_) driver.exchange_capture_mode(&mode_);
  }
  Current(Current const&) = delete;
  Current& operator=(Current const&) = delete;
  ~Current() {
    cuda::Context popped = nullptr;
    if (entered_) device_.driver_.exchange_capture_mode(&mode_);
    if (pushed_) device_.driver_.context_pop(&popped);
  }
  explicit operator bool() const { return entered_; }

 private:
  CudaDevice& device_;
  bool entered_ = false;
  bool pushed_ = false;
  int mode_ = cuda::kRelaxed;  // holds the previous mode once it has been exchanged
};

// Makes a call that does not count as a device call of an allocator. True on success.
template <class Function, class... Arguments>
bool CudaDevice::run_aside(Function const& call, Arguments... arguments) {
  if (inherited()) return false;
  Current const current(*this);
  return current && noted(call.name, call(arguments...));
}

}  // namespace allocbench

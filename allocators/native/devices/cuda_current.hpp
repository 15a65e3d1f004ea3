// devices/cuda_current.hpp: calls to the driver in the context of a device.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "devices/cuda.hpp"

namespace allocbench {

// The context, the device's own unless another is named, is that of this thread, and no call counts
// as unsafe for a graph being captured, while this lives.
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
  int mode_ = cuda::kRelaxed;  // the previous mode, once exchanged
};

// True if a call succeeded that does not count as a device call of an allocator.
template <class Function, class... Arguments>
bool CudaDevice::run_aside(Function const& call, Arguments... arguments) {
  if (inherited()) return false;
  Current const current(*this);
  return current && noted(call.name, call(arguments...));
}

}  // namespace allocbench

// devices/cuda.hpp: the memory of an NVIDIA GPU, through the CUDA driver.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/device.hpp"
#include "devices/cuda_driver.hpp"

namespace allocbench {

// Segments come from cuMemAlloc, pages from cuMemCreate and cuMemMap, pools from cuMemPoolCreate.
// All calls use the GPU's primary context, which PyTorch and CuPy share, and may come from any
// thread. Their cost is measured around the driver call.
//
// A page is unmapped and a device closed only after all work on the GPU has finished, because a
// program may still be using the memory. This wait does not count towards the cost of the call.
// cuMemFree waits by itself.
//
// A context does not survive a fork: in the child every call fails, and nothing is freed, because
// the memory belongs to the parent.
class CudaDevice final : public Device {
 public:
  // GPU number `ordinal`. At most `limit` bytes are reserved through this object. Throws SpecError
  // if there is no such GPU and DeviceError if its context cannot be created.
  CudaDevice(int ordinal, std::optional<Size> limit);
  ~CudaDevice() override;
  // Loads the driver and registers an exit handler that closes all devices: after Python's own
  // cleanup and before the driver unloads. Creating the first device does the same.
  static void prepare();

  Size capacity() const override { return capacity_.load(std::memory_order_relaxed); }
  void limit(Size bytes) { capacity_ = std::min(total_, bytes); }  // from now on
  Size total() const { return total_; }
  Size granularity() const override { return granularity_; }
  bool simulated() const override { return false; }
  std::string cost_source() const override { return "measured"; }
  bool has_pools() const override { return has_pools_; }

  int ordinal() const { return ordinal_; }
  std::string const& name() const { return name_; }
  int driver_version() const { return driver_.version; }
  std::optional<Size>
  free_bytes();  // on the whole GPU, all processes included; empty after a failure

  // Maps a program's CUDA streams to small numbers; the default stream is 0. For a number without a
  // stream of the program, a stream is created here.
  Stream number(cuda::Stream stream);
  cuda::Stream stream(Stream number);

  // An event after the work queued on a stream so far; null, with a failure noted, if it cannot be
  // created.
  cuda::Event record(cuda::Stream stream);
  bool done(cuda::Event event);  // a failure counts as done
  void wait(cuda::Event event);
  void destroy(cuda::Event event);
  void fill(Address address, Size size, unsigned char value, cuda::Stream stream);
  void synchronize();

 private:
  class Current;

  Address do_allocate(Size size, Size reserved, double& seconds) override;
  bool do_free(Address segment, Size size, double& seconds) override;
  Address do_reserve(Size size, double& seconds) override;
  bool do_unreserve(Address reservation, Size size, double& seconds) override;
  bool do_map(Address page, Size size, Size reserved, double& seconds) override;
  bool do_unmap(Address page, Size size, double& seconds) override;
  Pool do_open_pool(Size keep, double& seconds) override;
  Address do_allocate_from(Pool pool, Size size, Stream stream, Size others,
                           double& seconds) override;
  bool do_free_to(Pool pool, Address block, Stream stream, double& seconds) override;
  void do_trim_pool(Pool pool, double& seconds) override;
  Size do_held_by(Pool pool, Size before) override;
  bool do_close_pool(Pool pool, double& seconds) override;
  void do_close() override;

  bool inherited() const;  // true in a forked child process
  bool usable();           // notes a failure if this is a forked child
  template <class Function, class... Arguments>
  cuda::Result run(double& seconds, Function const& call, Arguments... arguments);
  template <class Function, class... Arguments>
  bool run_on(Size size, double& seconds, Function const& call, Arguments... arguments);
  template <class Function, class... Arguments>
  bool run_aside(Function const& call, Arguments... arguments);
  bool noted(char const* call, cuda::Result result, Size size = 0);

  cuda::Driver const& driver_;
  int ordinal_;
  cuda::DeviceId id_ = 0;
  cuda::Context context_ = nullptr;
  pid_t process_;
  std::string name_;
  Size total_ = 0;
  std::atomic<Size> capacity_ = 0;
  Size granularity_ = 0;
  bool has_pools_ = false;

  std::vector<cuda::Allocation> unreleased_;  // whose release failed

  std::mutex streams_mutex_;
  std::unordered_map<cuda::Stream, Stream> numbers_;
  std::vector<cuda::Stream> streams_;
  std::vector<cuda::Stream> made_here_;
};

}  // namespace allocbench

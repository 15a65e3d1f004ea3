// devices/cuda.hpp: the memory of an NVIDIA GPU, through the CUDA driver.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
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
// Pages and pools are open to the other GPUs that this process has opened and that can reach them,
// for a program may copy between its GPUs; segments of cuMemAlloc always are.
//
// A context does not survive a fork: in the child every call fails, and nothing is given back, for
// the memory is still the parent's.
class CudaDevice final : public Device {
 public:
  // GPU number `ordinal`. At most `limit` bytes are reserved through this object. Throws SpecError
  // if there is no such GPU and DeviceError if its context cannot be created.
  CudaDevice(int ordinal, std::optional<Size> limit);
  ~CudaDevice() override;
  Size capacity() const override { return capacity_.load(std::memory_order_relaxed); }
  // From now on; never more than at the opening.
  void limit(Size bytes) { capacity_ = std::min(most_, bytes); }
  Size total() const { return total_; }
  Size granularity() const override { return granularity_; }
  bool simulated() const override { return false; }
  std::string cost_source() const override { return "measured"; }
  bool has_pools() const override { return has_pools_; }

  int ordinal() const { return ordinal_; }
  std::string const& name() const { return name_; }
  std::string uuid();  // "GPU-" and 32 digits, as nvidia-smi writes it; empty on a failure
  int driver_version() const { return driver_.version; }
  std::optional<Size>
  free_bytes();  // on the whole GPU, all processes included; empty after a failure

  // A stream that a program names by a handle: the default streams have one handle in all contexts,
  // and that of a thread in all threads.
  struct StreamName {
    cuda::Context context;
    cuda::Stream handle;
    std::uint64_t thread;  // of a thread's default stream, else 0
    auto operator<=>(StreamName const&) const = default;
  };
  StreamName name_of(cuda::Stream stream) const;  // on this GPU, for this thread
  // What a handle may name when nothing else is known: a default stream is that of each GPU that
  // this process uses; any other handle tells its context.
  std::vector<StreamName> names_of(cuda::Stream stream);

  // Streams of a program by small numbers, the default stream being 0. A number that no stream of
  // the program has is that of a stream made here. For the default stream of another thread, which
  // cannot be named here, stands the GPU's default stream, which waits for it.
  Stream number(cuda::Stream stream);
  cuda::Stream stream(Stream number);

  // What a program has queued on a stream up to now; null, and a failure, when that cannot be had.
  cuda::Event record(StreamName const& stream);
  bool done(cuda::Event event);  // a failure counts as done
  void wait(cuda::Event event);
  void destroy(cuda::Event event);
  void fill(Address address, Size size, unsigned char value, Stream stream);
  void synchronize();
  void synchronize(cuda::Context context);

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
  void open_to(CudaDevice& peer);
  std::vector<cuda::Access> accesses() const;
  bool noted(char const* call, cuda::Result result, Size size = 0);

  cuda::Driver const& driver_;
  int ordinal_;
  cuda::DeviceId id_ = 0;
  cuda::Context context_ = nullptr;
  pid_t process_;
  std::string name_;
  Size total_ = 0;
  Size most_ = 0;
  std::atomic<Size> capacity_ = 0;
  Size granularity_ = 0;
  bool has_pools_ = false;

  std::vector<cuda::Allocation> unreleased_;  // whose release failed

  mutable std::mutex access_mutex_;
  std::vector<cuda::DeviceId> peers_;
  std::map<cuda::Pointer, Size> pages_;  // mapped
  std::set<cuda::MemoryPool> open_pools_;

  std::mutex streams_mutex_;
  std::map<StreamName, Stream> numbers_;
  std::vector<StreamName> streams_;
  std::vector<cuda::Stream> made_here_;
};

}  // namespace allocbench

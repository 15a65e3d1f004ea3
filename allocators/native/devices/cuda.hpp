// devices/cuda.hpp: the memory of an NVIDIA GPU, through the CUDA driver.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/device.hpp"
#include "gpu/cuda_types.hpp"

// The CUDA driver API, loaded at run time. allocbench needs no part of CUDA to build or import:
// libcuda.so.1, which is part of every GPU driver, is opened when a CUDA device is first used.
// Types and constants repeat those of cuda.h, whose ABI is stable.
namespace allocbench::cuda {

using Result = int;
using DeviceId = int;
using Context = void*;
using Pointer = unsigned long long;
using Stream = void*;
using Event = void*;
using Allocation = unsigned long long;
using MemoryPool = void*;

inline constexpr Result kSuccess = 0;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kDeinitialized = 4;
inline constexpr Result kNotReady = 600;

// Handles with a fixed value: the default stream of the current context (which a null handle also
// denotes) and the default stream of the calling thread.
inline Stream const kLegacyStream = reinterpret_cast<Stream>(1);
inline Stream const kPerThreadStream = reinterpret_cast<Stream>(2);

enum Attribute : int { kVirtualMemory = 102, kMemoryPools = 115 };
enum PoolAttribute : int { kReleaseThreshold = 4, kReserved = 5 };
enum CaptureMode : int { kRelaxed = 2 };
inline constexpr unsigned kWithoutTiming = 2;  // event flag
inline constexpr unsigned kNonBlocking = 1;    // stream flag

// CALL(member, symbol, parameters...)
#define ALLOCBENCH_CUDA_CALLS(CALL)                                                                \
  CALL(init, cuInit, unsigned)                                                                     \
  CALL(driver_version, cuDriverGetVersion, int*)                                                   \
  CALL(error_name, cuGetErrorName, Result, char const**)                                           \
  CALL(error_text, cuGetErrorString, Result, char const**)                                         \
  CALL(device_count, cuDeviceGetCount, int*)                                                       \
  CALL(device_get, cuDeviceGet, DeviceId*, int)                                                    \
  CALL(device_name, cuDeviceGetName, char*, int, DeviceId)                                         \
  CALL(device_attribute, cuDeviceGetAttribute, int*, int, DeviceId)                                \
  CALL(device_bytes, cuDeviceTotalMem_v2, std::size_t*, DeviceId)                                  \
  CALL(device_uuid, cuDeviceGetUuid, unsigned char*, DeviceId)                                     \
  CALL(can_access_peer, cuDeviceCanAccessPeer, int*, DeviceId, DeviceId)                           \
  CALL(context_state, cuDevicePrimaryCtxGetState, DeviceId, unsigned*, int*)                       \
  CALL(context_retain, cuDevicePrimaryCtxRetain, Context*, DeviceId)                               \
  CALL(context_release, cuDevicePrimaryCtxRelease_v2, DeviceId)                                    \
  CALL(context_current, cuCtxGetCurrent, Context*)                                                 \
  CALL(context_push, cuCtxPushCurrent_v2, Context)                                                 \
  CALL(context_pop, cuCtxPopCurrent_v2, Context*)                                                  \
  CALL(synchronize, cuCtxSynchronize)                                                              \
  CALL(memory_info, cuMemGetInfo_v2, std::size_t*, std::size_t*)                                   \
  CALL(allocate, cuMemAlloc_v2, Pointer*, std::size_t)                                             \
  CALL(free, cuMemFree_v2, Pointer)                                                                \
  CALL(fill, cuMemsetD8Async, Pointer, unsigned char, std::size_t, Stream)                         \
  CALL(granularity, cuMemGetAllocationGranularity, std::size_t*, AllocationProperties const*, int) \
  CALL(reserve, cuMemAddressReserve, Pointer*, std::size_t, std::size_t, Pointer,                  \
       unsigned long long)                                                                         \
  CALL(unreserve, cuMemAddressFree, Pointer, std::size_t)                                          \
  CALL(create, cuMemCreate, Allocation*, std::size_t, AllocationProperties const*,                 \
       unsigned long long)                                                                         \
  CALL(release, cuMemRelease, Allocation)                                                          \
  CALL(map, cuMemMap, Pointer, std::size_t, std::size_t, Allocation, unsigned long long)           \
  CALL(unmap, cuMemUnmap, Pointer, std::size_t)                                                    \
  CALL(set_access, cuMemSetAccess, Pointer, std::size_t, AccessDescription const*, std::size_t)    \
  CALL(pool_create, cuMemPoolCreate, MemoryPool*, PoolProperties const*)                           \
  CALL(pool_destroy, cuMemPoolDestroy, MemoryPool)                                                 \
  CALL(pool_set_access, cuMemPoolSetAccess, MemoryPool, AccessDescription const*, std::size_t)     \
  CALL(pool_set, cuMemPoolSetAttribute, MemoryPool, int, void*)                                    \
  CALL(pool_get, cuMemPoolGetAttribute, MemoryPool, int, void*)                                    \
  CALL(pool_trim, cuMemPoolTrimTo, MemoryPool, std::size_t)                                        \
  CALL(pool_allocate, cuMemAllocFromPoolAsync, Pointer*, std::size_t, MemoryPool, Stream)          \
  CALL(pool_free, cuMemFreeAsync, Pointer, Stream)                                                 \
  CALL(stream_create, cuStreamCreate, Stream*, unsigned)                                           \
  CALL(stream_destroy, cuStreamDestroy_v2, Stream)                                                 \
  CALL(stream_context, cuStreamGetCtx, Stream, Context*)                                           \
  CALL(event_create, cuEventCreate, Event*, unsigned)                                              \
  CALL(event_record, cuEventRecord, Event, Stream)                                                 \
  CALL(event_query, cuEventQuery, Event)                                                           \
  CALL(event_synchronize, cuEventSynchronize, Event)                                               \
  CALL(event_destroy, cuEventDestroy_v2, Event)                                                    \
  CALL(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, int*)

// The driver's functions, each with its symbol name.
class Driver {
 public:
  template <class... Parameters>
  struct Call {
    Result (*function)(Parameters...) = nullptr;
    char const* name;

    template <class... Arguments>
    Result operator()(Arguments... arguments) const {
      return function(arguments...);
    }
  };

  // Loads and initializes the driver at the first call in a process. Throws SpecError if there is
  // no driver or no GPU, or if the driver is too old.
  static Driver const& get();

  // "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2: out of memory)"
  std::string describe(char const* call, Result result) const;

#define ALLOCBENCH_MEMBER(member, symbol, ...) Call<__VA_ARGS__> member{nullptr, #symbol};
  ALLOCBENCH_CUDA_CALLS(ALLOCBENCH_MEMBER)
#undef ALLOCBENCH_MEMBER

  int devices = 0;
  int version = 0;  // 12040 for 12.4

 private:
  Driver();
};

}  // namespace allocbench::cuda

namespace allocbench {

// Segments come from cuMemAlloc, pages from cuMemCreate and cuMemMap, pools from cuMemPoolCreate.
// All calls use the GPU's primary context, which PyTorch and CuPy share, and may come from any
// thread. The cost of a call is the time that the driver call takes.
//
// A page is unmapped and a device is closed only after all work on the GPU has finished, because a
// program may still be using the memory. This wait does not count towards the cost of the call.
// cuMemFree waits by itself.
//
// A program may copy between its GPUs. Every other GPU that this process has opened therefore gets
// access to pages and pools, if the hardware allows it. Segments of cuMemAlloc need no such call.
//
// A context does not survive a fork. In the child every call fails and no memory is freed, because
// the memory still belongs to the parent.
class CudaDevice final : public PoolDevice {
 public:
  // GPU number `ordinal`. At most `limit` bytes are reserved through this object. Throws SpecError
  // if there is no such GPU and DeviceError if its context cannot be created.
  CudaDevice(int ordinal, std::optional<Size> limit);
  ~CudaDevice() override;
  Size stated_capacity() const override { return capacity_.load(std::memory_order_relaxed); }
  // Changes the limit, up to the limit of the constructor.
  void limit(Size bytes) { capacity_ = std::min(most_, bytes); }
  Size total() const { return total_; }
  Size granularity() const override { return granularity_; }
  bool simulated() const override { return false; }
  std::string cost_source() const override { return "measured"; }
  bool has_driver_pools() const override { return has_driver_pools_; }

  int ordinal() const { return ordinal_; }
  std::string const& name() const { return name_; }
  std::string uuid();  // "GPU-" and 32 digits, as nvidia-smi writes it; empty on a failure
  int driver_version() const { return driver_.version; }
  // Free bytes of the whole GPU, with the memory of all processes counted; empty after a failure.
  std::optional<Size> free_bytes();

  // Identifies a stream in the process. A handle alone is not enough: the handle of a default
  // stream is the same in all contexts, and that of a per-thread default stream in all threads.
  struct StreamName {
    cuda::Context context;
    cuda::Stream handle;
    std::uint64_t thread;  // 0 unless this is the default stream of a thread
    auto operator<=>(StreamName const&) const = default;
  };
  StreamName name_of(cuda::Stream stream) const;  // on this GPU, for the calling thread
  // All streams that a handle can denote when the GPU is unknown: for a default stream, the one on
  // each GPU that this process uses; for any other handle, the stream in its own context.
  std::vector<StreamName> names_of(cuda::Stream stream);

  // Streams are numbered in order of appearance; the default stream is 0. `stream` creates streams
  // for numbers that no stream of the program has. The default stream of another thread has no
  // handle in this thread, so `stream` returns the legacy default stream, which waits for it.
  Stream number(cuda::Stream stream);
  cuda::Stream stream(Stream number);

  // An event after all work that is queued on a stream now. Null, and a failure, if the driver
  // cannot record one.
  cuda::Event record(StreamName const& stream);
  bool done(cuda::Event event);  // a failed query counts as done
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
  PoolHandle do_open_pool(Size keep, double& seconds) override;
  Address do_allocate_from(PoolHandle pool, Size size, Stream stream, Size others,
                           double& seconds) override;
  bool do_free_to(PoolHandle pool, Address block, Size size, Stream stream,
                  double& seconds) override;
  void do_trim_pool(PoolHandle pool, double& seconds) override;
  Size do_held_by(PoolHandle pool, Size before) override;
  bool do_close_pool(PoolHandle pool, double& seconds) override;
  void do_close() override;

  bool inherited() const;  // true in a forked child process
  bool usable();           // in a forked child: records a failure and returns false
  template <class Function, class... Arguments>
  cuda::Result run(double& seconds, Function const& call, Arguments... arguments);
  template <class Function, class... Arguments>
  bool run_on(Size size, double& seconds, Function const& call, Arguments... arguments);
  template <class Function, class... Arguments>
  bool run_aside(Function const& call, Arguments... arguments);
  void open_to(CudaDevice& peer);
  std::vector<cuda::AccessDescription> accesses() const;
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
  bool has_driver_pools_ = false;

  std::vector<cuda::Allocation> unreleased_;  // handles whose release failed

  mutable std::mutex access_mutex_;
  std::vector<cuda::DeviceId> peers_;
  std::map<cuda::Pointer, Size> pages_;  // mapped pages and their sizes in bytes
  std::set<cuda::MemoryPool> open_pools_;

  std::mutex streams_mutex_;
  std::map<StreamName, Stream> numbers_;
  std::vector<StreamName> streams_;
  std::vector<cuda::Stream> own_streams_;  // created by `stream`
};

}  // namespace allocbench

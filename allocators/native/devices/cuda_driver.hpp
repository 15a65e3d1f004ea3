// devices/cuda_driver.hpp: the CUDA driver API, loaded at run time.
// SPDX-License-Identifier: Apache-2.0
//
// allocbench needs no part of CUDA to build or import: libcuda.so.1, which is part of every GPU
// driver, is opened when a CUDA device is first used. Types and constants repeat those of cuda.h,
// whose ABI is stable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

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

struct Location {
  int type = 1;  // a device
  int id = 0;
};

struct AllocationProperties {
  int type = 1;  // pinned
  int handle_types = 0;
  Location location;
  void* windows = nullptr;
  unsigned char flags[8] = {};
};
static_assert(sizeof(AllocationProperties) == 32);

struct Access {
  Location location;
  int flags = 3;  // read and write
};
static_assert(sizeof(Access) == 12);

struct PoolProperties {
  int type = 1;  // pinned
  int handle_types = 0;
  Location location;
  void* windows = nullptr;
  std::size_t most = 0;  // 0: as large as the device
  unsigned char reserved[56] = {};
};
static_assert(sizeof(PoolProperties) == 88);

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
  CALL(set_access, cuMemSetAccess, Pointer, std::size_t, Access const*, std::size_t)               \
  CALL(pool_create, cuMemPoolCreate, MemoryPool*, PoolProperties const*)                           \
  CALL(pool_destroy, cuMemPoolDestroy, MemoryPool)                                                 \
  CALL(pool_set_access, cuMemPoolSetAccess, MemoryPool, Access const*, std::size_t)                \
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

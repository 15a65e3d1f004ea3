// native/api.hpp: the constants and structs of CUDA's ABI that the null GPU uses.
// SPDX-License-Identifier: Apache-2.0
//
// They are declared here so that no header of CUDA is needed to build. The runtime and the driver
// use the same numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/types.hpp"
#include "gpu/cuda_types.hpp"

// A function to which the stand-in libraries jump. Its name is "null_" and the name in CUDA.
#define NULL_GPU_API extern "C" __attribute__((visibility("default")))
// Other functions that are the same as one in this file, which has more arguments or the same ones.
#define NULL_GPU_ALIASES(function, ...) \
  extern "C" __attribute__((visibility("default"), alias(#function))) decltype(function) __VA_ARGS__
// A function that returns a status.
#define NULL_GPU_GIVES(name, parameters, ...) \
  NULL_GPU_API int null_##name parameters { return __VA_ARGS__; }
// A function that succeeds after one statement.
#define NULL_GPU_DOES(name, parameters, ...) \
  NULL_GPU_API int null_##name parameters {  \
    __VA_ARGS__;                             \
    return kSuccess;                         \
  }

// A function that returns the text of a status.
#define NULL_GPU_TEXTS(name)                                                  \
  NULL_GPU_API char const* null_##name(int status) {                          \
    return status == kSuccess ? "no error" : "not supported by the null GPU"; \
  }

namespace allocbench::null_gpu {

using allocbench::Address;
using allocbench::Size;
static_assert(sizeof(Size) == sizeof(std::size_t));

using Handle = void*;
using Status = int;

// Of CUDA's runtime and driver.
inline constexpr Status kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2;
inline constexpr Status kNotInitialized = 3, kDeinitialized = 4, kNoGpu = 100, kInvalidDevice = 101;
inline constexpr Status kInvalidContext = 201, kInvalidHandle = 400, kIllegalState = 401;
inline constexpr Status kNotFound = 500, kNotReady = 600, kIllegalAddress = 700;
inline constexpr Status kNotSupported = 801, kCaptureUnsupported = 900, kCaptureInvalidated = 901;
inline constexpr Status kCapturedEvent = 907, kWrongThread = 908;
// What NVIDIA's other libraries return for an unsupported call.
inline constexpr Status kCublasNotSupported = 15, kCudnnNotSupported = 3000, kNvmlNotSupported = 3;

inline Size size_of(Size size) { return size; }
template <class Range>
Size size_of(Range const& range) {
  return range.size;
}

// The entry of a map of ranges, by their first addresses, that contains an address; end(): none
// does.
template <class Map>
auto around(Map& ranges, Address address) {
  auto entry = ranges.upper_bound(address);
  if (entry == ranges.begin()) return ranges.end();
  --entry;
  return address < entry->first + size_of(entry->second) ? entry : ranges.end();
}

// The only object of a class in this process. It is never destroyed, because threads may call until
// the process ends.
template <class Object>
class Only {
 public:
  static Object& get() {
    static auto* const made = new Object;
    return *made;
  }
};

struct Dim3 {
  unsigned x, y, z;
};

struct LaunchConfig {  // cudaLaunchConfig_t
  Dim3 grid, block;
  Size shared;
  Handle stream;
  void* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchConfig) == 56 && offsetof(LaunchConfig, stream) == 32);

struct DriverLaunchConfig {  // CUlaunchConfig
  Dim3 grid, block;
  unsigned shared;
  Handle stream;
  void* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(DriverLaunchConfig) == 56 && offsetof(DriverLaunchConfig, stream) == 32);

struct FunctionAttributes {  // cudaFuncAttributes
  Size shared, constant, local;
  int threads_per_block, registers, ptx_version, binary_version, cache_mode, dynamic_shared;
  int others[24];
};
static_assert(sizeof(FunctionAttributes) == 144);
static_assert(offsetof(FunctionAttributes, dynamic_shared) == 44);

// cudaPointerAttributes, without the reserved words that CUDA 13 adds at the end.
struct PointerAttributes {
  int type, device;
  void* device_pointer;
  void* host_pointer;
};
static_assert(sizeof(PointerAttributes) == 24);

enum PointerType : int { kUnregistered = 0, kHost = 1, kDevice = 2, kManaged = 3 };
inline constexpr int kNoDevice = -2;

using namespace allocbench::cuda;
inline constexpr int kOnDevice = 1;                     // CU_MEM_LOCATION_TYPE_DEVICE
inline constexpr int kPinned = 1;                       // CU_MEM_ALLOCATION_TYPE_PINNED
inline constexpr int kNoAccess = 0, kReadAndWrite = 3;  // CUmemAccess_flags

// CUmemPool_attribute
inline constexpr int kReuseFollowsEvents = 1, kReuseOfEnded = 2, kReuseAddsDependencies = 3;
inline constexpr int kReleaseThreshold = 4, kReservedNow = 5, kReservedHigh = 6, kUsedNow = 7;
inline constexpr int kUsedHigh = 8;

inline constexpr unsigned kBlocking = 0;  // CU_STREAM_DEFAULT

}  // namespace allocbench::null_gpu

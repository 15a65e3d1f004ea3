// Compares the null GPU's own declarations with CUDA's headers; argument: the null GPU's library.
// SPDX-License-Identifier: Apache-2.0
#include <cuda.h>
#include <driver_types.h>

#include <cstring>

#include "core.hpp"
#include "null_gpu/native/api.hpp"
#include "null_gpu/native/streams.hpp"

namespace null = allocbench::null_gpu;

#define SAME_SIZE(ours, theirs) static_assert(sizeof(ours) == sizeof(theirs))
#define SAME(ours, member, theirs, other)                           \
  static_assert(offsetof(ours, member) == offsetof(theirs, other)); \
  static_assert(sizeof(ours::member) == sizeof(theirs::other))

SAME_SIZE(null::LaunchConfig, cudaLaunchConfig_t);
SAME(null::LaunchConfig, shared, cudaLaunchConfig_t, dynamicSmemBytes);
SAME(null::LaunchConfig, stream, cudaLaunchConfig_t, stream);
SAME(null::LaunchConfig, attribute_count, cudaLaunchConfig_t, numAttrs);
SAME_SIZE(null::DriverLaunchConfig, CUlaunchConfig);
SAME(null::DriverLaunchConfig, shared, CUlaunchConfig, sharedMemBytes);
SAME(null::DriverLaunchConfig, stream, CUlaunchConfig, hStream);
SAME(null::DriverLaunchConfig, attribute_count, CUlaunchConfig, numAttrs);
SAME_SIZE(null::FunctionAttributes, cudaFuncAttributes);
SAME(null::FunctionAttributes, local, cudaFuncAttributes, localSizeBytes);
SAME(null::FunctionAttributes, registers, cudaFuncAttributes, numRegs);
SAME(null::FunctionAttributes, ptx_version, cudaFuncAttributes, ptxVersion);
SAME(null::FunctionAttributes, binary_version, cudaFuncAttributes, binaryVersion);
SAME(null::FunctionAttributes, dynamic_shared, cudaFuncAttributes, maxDynamicSharedSizeBytes);
static_assert(sizeof(null::PointerAttributes) <= sizeof(cudaPointerAttributes));
SAME(null::PointerAttributes, type, cudaPointerAttributes, type);
SAME(null::PointerAttributes, device, cudaPointerAttributes, device);
SAME(null::PointerAttributes, device_pointer, cudaPointerAttributes, devicePointer);
SAME(null::PointerAttributes, host_pointer, cudaPointerAttributes, hostPointer);
SAME_SIZE(null::Location, CUmemLocation);
SAME(null::Location, id, CUmemLocation, id);
SAME_SIZE(null::AccessDescription, CUmemAccessDesc);
SAME(null::AccessDescription, location, CUmemAccessDesc, location);
SAME_SIZE(null::AllocationProperties, CUmemAllocationProp);
SAME(null::AllocationProperties, location, CUmemAllocationProp, location);
SAME_SIZE(null::PoolProperties, CUmemPoolProps);
SAME(null::PoolProperties, location, CUmemPoolProps, location);
SAME(null::PoolProperties, most, CUmemPoolProps, maxSize);

#define EQUAL(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs))

EQUAL(null::kInvalidValue, cudaErrorInvalidValue);
EQUAL(null::kOutOfMemory, cudaErrorMemoryAllocation);
EQUAL(null::kNotInitialized, cudaErrorInitializationError);
EQUAL(null::kNotInitialized, CUDA_ERROR_NOT_INITIALIZED);
EQUAL(null::kDeinitialized, cudaErrorCudartUnloading);
EQUAL(null::kDeinitialized, CUDA_ERROR_DEINITIALIZED);
EQUAL(null::kNoGpu, cudaErrorNoDevice);
EQUAL(null::kInvalidDevice, cudaErrorInvalidDevice);
EQUAL(null::kInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
EQUAL(null::kInvalidContext, cudaErrorDeviceUninitialized);
EQUAL(null::kInvalidHandle, cudaErrorInvalidResourceHandle);
EQUAL(null::kNotFound, cudaErrorSymbolNotFound);
EQUAL(null::kNotReady, cudaErrorNotReady);
EQUAL(null::kIllegalAddress, cudaErrorIllegalAddress);
EQUAL(null::kNotSupported, cudaErrorNotSupported);
EQUAL(null::kCaptureUnsupported, cudaErrorStreamCaptureUnsupported);
EQUAL(null::kCaptureInvalidated, cudaErrorStreamCaptureInvalidated);
EQUAL(null::kCapturedEvent, cudaErrorCapturedEvent);
EQUAL(null::kUnregistered, cudaMemoryTypeUnregistered);
EQUAL(null::kHost, cudaMemoryTypeHost);
EQUAL(null::kDevice, cudaMemoryTypeDevice);
EQUAL(null::kNoDevice, cudaInvalidDeviceId);
EQUAL(null::kOnDevice, CU_MEM_LOCATION_TYPE_DEVICE);
EQUAL(null::kNoAccess, CU_MEM_ACCESS_FLAGS_PROT_NONE);
EQUAL(null::kReadAndWrite, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
EQUAL(null::kBlocking, CU_STREAM_DEFAULT);
EQUAL(null::kReleaseThreshold, cudaMemPoolAttrReleaseThreshold);
EQUAL(null::kReservedNow, cudaMemPoolAttrReservedMemCurrent);
EQUAL(null::kReservedHigh, cudaMemPoolAttrReservedMemHigh);
EQUAL(null::kUsedNow, cudaMemPoolAttrUsedMemCurrent);
EQUAL(null::kUsedHigh, cudaMemPoolAttrUsedMemHigh);
EQUAL(null::kGlobal, cudaStreamCaptureModeGlobal);
EQUAL(null::kThreadLocal, cudaStreamCaptureModeThreadLocal);
EQUAL(null::kRelaxed, cudaStreamCaptureModeRelaxed);
EQUAL(null::kActive, cudaStreamCaptureStatusActive);
EQUAL(null::kInvalidated, cudaStreamCaptureStatusInvalidated);

#define MEMBER(name, value) check(#name, static_cast<long long>(properties.name), value)
#define ATTRIBUTE(name, value) check(#name, attribute(cudaDevAttr##name), value)

int main(int, char** arguments) {
  bool const loaded = load(
      arguments[1],
      "name=a card\ncompute_capability=89\nmultiprocessors=101\nshared_per_multiprocessor=102\n"
      "shared_per_block=103\nthreads_per_multiprocessor=104\nblocks_per_multiprocessor=105\n"
      "l2_bytes=106\nbus_bits=107\nclock_khz=108\nmemory_clock_khz=109\nmemory=110000000\n"
      "context=0\n");
  if (!loaded) return 2;
  char const* const function =
      CUDA_VERSION < 13000 ? "null_cudaGetDeviceProperties_v2" : "null_cudaGetDeviceProperties";
  auto const get = reinterpret_cast<int (*)(cudaDeviceProp*, int)>(dlsym(core, function));
  auto const ask =
      reinterpret_cast<int (*)(int*, int, int)>(dlsym(core, "null_cudaDeviceGetAttribute"));
  Room<cudaDeviceProp> room;
  get(&room.here, 0);
  room.check_behind("behind the struct");
  auto const& properties = room.here;
  check("name", std::strcmp(properties.name, "a card"), 0);
  MEMBER(totalGlobalMem, 110000000);
  MEMBER(sharedMemPerBlock, 49152);
  MEMBER(regsPerBlock, 65536);
  MEMBER(warpSize, 32);
  MEMBER(maxThreadsPerBlock, 1024);
  MEMBER(maxThreadsDim[2], 64);
  MEMBER(maxGridSize[0], 2147483647);
  MEMBER(maxGridSize[2], 65535);
  MEMBER(totalConstMem, 65536);
  MEMBER(major, 8);
  MEMBER(minor, 9);
  MEMBER(textureAlignment, 512);
  MEMBER(multiProcessorCount, 101);
  MEMBER(integrated, 0);
  MEMBER(canMapHostMemory, 1);
  MEMBER(concurrentKernels, 1);
  MEMBER(ECCEnabled, 0);
  MEMBER(pciBusID, 1);
  MEMBER(asyncEngineCount, 3);
  MEMBER(unifiedAddressing, 1);
  MEMBER(memoryBusWidth, 107);
  MEMBER(l2CacheSize, 106);
  MEMBER(maxThreadsPerMultiProcessor, 104);
  MEMBER(streamPrioritiesSupported, 1);
  MEMBER(sharedMemPerMultiprocessor, 102);
  MEMBER(regsPerMultiprocessor, 65536);
  MEMBER(managedMemory, 1);
  MEMBER(isMultiGpuBoard, 0);
  MEMBER(concurrentManagedAccess, 1);
  MEMBER(computePreemptionSupported, 1);
  MEMBER(cooperativeLaunch, 1);
  MEMBER(sharedMemPerBlockOptin, 103);
  MEMBER(maxBlocksPerMultiProcessor, 105);
  MEMBER(reservedSharedMemPerBlock, 1024);
  MEMBER(hostRegisterSupported, 1);
  MEMBER(memoryPoolsSupported, 1);
  MEMBER(ipcEventSupported, 1);
  MEMBER(clusterLaunch, 0);
  MEMBER(unifiedFunctionPointers, 1);
#if CUDA_VERSION < 13000
  MEMBER(clockRate, 108);
  MEMBER(memoryClockRate, 109);
  MEMBER(deviceOverlap, 1);
  MEMBER(singleToDoublePrecisionPerfRatio, 32);
#endif
  auto const attribute = [ask](int number) {
    int value = -1;
    ask(&value, number, 0);
    return value;
  };
  ATTRIBUTE(MaxThreadsPerBlock, 1024);
  ATTRIBUTE(MaxBlockDimZ, 64);
  ATTRIBUTE(MaxSharedMemoryPerBlock, 49152);
  ATTRIBUTE(WarpSize, 32);
  ATTRIBUTE(ClockRate, 108);
  ATTRIBUTE(MultiProcessorCount, 101);
  ATTRIBUTE(EccEnabled, 0);
  ATTRIBUTE(PciBusId, 1);
  ATTRIBUTE(MemoryClockRate, 109);
  ATTRIBUTE(GlobalMemoryBusWidth, 107);
  ATTRIBUTE(L2CacheSize, 106);
  ATTRIBUTE(MaxThreadsPerMultiProcessor, 104);
  ATTRIBUTE(ComputeCapabilityMajor, 8);
  ATTRIBUTE(ComputeCapabilityMinor, 9);
  ATTRIBUTE(MaxSharedMemoryPerMultiprocessor, 102);
  ATTRIBUTE(MaxSharedMemoryPerBlockOptin, 103);
  ATTRIBUTE(MaxBlocksPerMultiprocessor, 105);
  ATTRIBUTE(ReservedSharedMemoryPerBlock, 1024);
  ATTRIBUTE(MemoryPoolsSupported, 1);
  ATTRIBUTE(CooperativeLaunch, 1);
  return wrong == 0 ? 0 : 1;
}

// native/devices.cpp: devices and their properties, in the runtime and in the driver.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "null_gpu/native/contexts.hpp"
#include "null_gpu/native/machine.hpp"
#include "null_gpu/native/pools.hpp"
#include "null_gpu/native/streams.hpp"

namespace allocbench::null_gpu {

namespace {

constexpr int kMostInt = 2147483647;
constexpr int kPersistingWindow = 134213632;
constexpr int kSystemShared = 1024;  // bytes that the system uses in each block

// The limits of textures and surfaces, by the number of the attribute. Measured on an H100 with
// driver 580.159.04, and taken for every card.
struct Limit {
  int number, value;
};
constexpr Limit kLimits[] = {
    {21, 131072},    {22, 131072}, {23, 65536}, {24, 16384},   {25, 16384}, {26, 16384},
    {27, 32768},     {28, 32768},  {29, 2048},  {30, 512},     {42, 32768}, {43, 2048},
    {44, 1},         {45, 32768},  {46, 32768}, {47, 8192},    {48, 8192},  {49, 32768},
    {51, 32},        {52, 32768},  {53, 32768}, {54, 2046},    {55, 32768}, {56, 131072},
    {57, 65536},     {58, 16384},  {59, 16384}, {60, 16384},   {61, 32768}, {62, 2048},
    {63, 32768},     {64, 32768},  {65, 2048},  {66, 32768},   {67, 32768}, {68, 2046},
    {69, 268435456}, {70, 131072}, {71, 65000}, {72, 2097120}, {73, 32768}, {74, 32768},
    {77, 32768},
};

bool is_for_datacenters(int compute_capability) {
  return compute_capability % 10 == 0;  // 7.0, 8.0, 9.0, 10.0 have fast doubles and ECC
}

}  // namespace

int attribute(int number, int device) {
  auto const& machine = Machine::get();
  auto const& card = machine.settings();
  int const capability = card.compute_capability;
  switch (number) {
      // clang-format off
    case 1: case 2: case 3: return 1024;            // threads of a block, and along x and y
    case 4: return 64;                              // along z
    case 5: return kMostInt;                        // blocks of a grid along x
    case 6: case 7: return 65535;                   // along y and z
    case 8: return 49152;                           // shared memory of a block, without opting in
    case 9: case 12: case 82: return 65536;         // constant memory, registers
    case 10: return 32;                             // threads of a warp
    case 11: return kMostInt;                       // pitch
    case 13: return card.clock_khz;
    case 14: return 512;                            // alignment of textures
    case 16: return card.multiprocessors;
    case 32: return is_for_datacenters(capability); // ECC
    case 33: return 1 + machine.card(device);       // PCI bus
    case 36: return card.memory_clock_khz;
    case 37: return card.bus_bits;
    case 38: return card.l2_bytes;
    case 39: return card.threads_per_multiprocessor;
    case 40: return 3;                              // engines for copies
    case 75: return capability / 10;
    case 76: return capability % 10;
    case 81: return card.shared_per_multiprocessor;
    case 87: return is_for_datacenters(capability) ? 2 : 32;  // float to double speed
    case 97: return card.shared_per_block;
    case 106: return card.blocks_per_multiprocessor;
    case 108: return card.l2_bytes / 8 * 5;         // of L2 that can persist
    case 109: return kPersistingWindow;
    case 111: return kSystemShared;
    case 120: return capability >= 90;              // clusters
    case 15: case 19: case 31: case 41:             // overlap, host mapping, kernels, addressing
    case 78: case 79: case 80: case 83:             // priorities, L1 caches, managed memory
    case 89: case 90: case 91: case 95:             // managed access, preemption, cooperative
    case 96: case 99: case 102: case 103:           // host registers, virtual memory, handles
    case 112: case 115: case 119: return 1;         // sparse arrays, memory pools, pool handles
    default: break;
      // clang-format on
  }
  auto const* const found = std::ranges::find(kLimits, number, &Limit::number);
  return found == std::end(kLimits) ? 0 : found->value;
}

void write_uuid(void* out, int device) {
  std::memcpy(out, "allocbench-null", 16);
  static_cast<char*>(out)[15] = static_cast<char>('0' + Machine::get().card(device));
}

void write_bus_id(char* out, int size, int device) {
  std::snprintf(out, size, "0000:%02X:00.0", 1 + Machine::get().card(device));
}

}  // namespace allocbench::null_gpu

using namespace allocbench::null_gpu;

namespace {

// A member of cudaDeviceProp: its offsets in CUDA 12 and 13 (-1: absent), its bytes and its value.
struct Member {
  int offset12, offset13, size;
  long long value;
};

// Fills a cudaDeviceProp, which has `size` bytes.
int write_properties(void* out, int device, int Member::* offset, int size) {
  if (!Machine::get().has(device)) return failed(kInvalidDevice);
  auto const& card = Machine::get().settings();
  Member const members[] = {
      {288, 288, 8, static_cast<long long>(card.memory)},  // totalGlobalMem
      {296, 296, 8, attribute(8, device)},                 // sharedMemPerBlock
      {304, 304, 4, 65536},                                // regsPerBlock
      {308, 308, 4, 32},                                   // warpSize
      {312, 312, 8, kMostInt},                             // memPitch
      {320, 320, 4, 1024},                                 // maxThreadsPerBlock
      {324, 324, 4, 1024},                                 // maxThreadsDim
      {328, 328, 4, 1024},
      {332, 332, 4, 64},
      {336, 336, 4, kMostInt},  // maxGridSize
      {340, 340, 4, 65535},
      {344, 344, 4, 65535},
      {348, -1, 4, card.clock_khz},                    // clockRate
      {352, 352, 8, 65536},                            // totalConstMem
      {360, 360, 4, attribute(75, device)},            // major
      {364, 364, 4, attribute(76, device)},            // minor
      {368, 368, 8, 512},                              // textureAlignment
      {376, 376, 8, 32},                               // texturePitchAlignment
      {384, -1, 4, 1},                                 // deviceOverlap
      {388, 384, 4, card.multiprocessors},             // multiProcessorCount
      {400, 392, 4, 1},                                // canMapHostMemory
      {576, 560, 4, 1},                                // concurrentKernels
      {580, 564, 4, attribute(32, device)},            // ECCEnabled
      {584, 568, 4, attribute(33, device)},            // pciBusID
      {600, 584, 4, 3},                                // asyncEngineCount
      {604, 588, 4, 1},                                // unifiedAddressing
      {608, -1, 4, card.memory_clock_khz},             // memoryClockRate
      {612, 592, 4, card.bus_bits},                    // memoryBusWidth
      {616, 596, 4, card.l2_bytes},                    // l2CacheSize
      {620, 600, 4, attribute(108, device)},           // persistingL2CacheMaxSize
      {624, 604, 4, card.threads_per_multiprocessor},  // maxThreadsPerMultiProcessor
      {628, 608, 4, 1},                                // streamPrioritiesSupported
      {632, 612, 4, 1},                                // globalL1CacheSupported
      {636, 616, 4, 1},                                // localL1CacheSupported
      {640, 624, 8, card.shared_per_multiprocessor},   // sharedMemPerMultiprocessor
      {648, 632, 4, 65536},                            // regsPerMultiprocessor
      {652, 636, 4, 1},                                // managedMemory
      {668, -1, 4, attribute(87, device)},             // singleToDoublePrecisionPerfRatio
      {676, 656, 4, 1},                                // concurrentManagedAccess
      {680, 660, 4, 1},                                // computePreemptionSupported
      {684, 664, 4, 1},                                // canUseHostPointerForRegisteredMem
      {688, 668, 4, 1},                                // cooperativeLaunch
      {696, 672, 8, card.shared_per_block},            // sharedMemPerBlockOptin
      {712, 688, 4, card.blocks_per_multiprocessor},   // maxBlocksPerMultiProcessor
      {716, 692, 4, kPersistingWindow},                // accessPolicyMaxWindowSize
      {720, 696, 8, kSystemShared},                    // reservedSharedMemPerBlock
      {728, 704, 4, 1},                                // hostRegisterSupported
      {744, 720, 4, 1},                                // memoryPoolsSupported
      {768, 744, 4, 1},                                // ipcEventSupported
      {772, 748, 4, attribute(120, device)},           // clusterLaunch
      {776, 752, 4, 1},                                // unifiedFunctionPointers
  };
  auto* const bytes = static_cast<char*>(out);
  std::memset(bytes, 0, size);
  std::snprintf(bytes, 256, "%s", card.name.c_str());
  write_uuid(bytes + 256, device);
  for (auto const& member : members)
    if (int const place = member.*offset; place >= 0)
      std::memcpy(bytes + place, &member.value, member.size);  // little-endian
  return kSuccess;
}

}  // namespace

NULL_GPU_API int null_cudaGetDeviceCount(int* count) {
  Contexts::get().use_runtime();
  *count = Machine::get().count();
  return *count > 0 ? kSuccess : failed(kNoGpu);
}

NULL_GPU_API int null_cudaGetDevice(int* device) {
  Contexts::get().use_runtime();
  *device = current_device();
  return kSuccess;
}

NULL_GPU_API int null_cudaSetDevice(int device) {
  Contexts::get().use_runtime();
  if (!Machine::get().has(device)) return failed(kInvalidDevice);
  set_current_device(device);
  return kSuccess;
}

NULL_GPU_DOES(cudaGetDeviceFlags, (unsigned* flags), *flags = 0)
NULL_GPU_DOES(cudaRuntimeGetVersion, (int* version),
              *version = Machine::get().settings().cuda_version)
NULL_GPU_DOES(cudaDriverGetVersion, (int* version), *version = Machine::get().driver_version())
NULL_GPU_DOES(cudaDeviceCanAccessPeer, (int* can, int device, int peer), *can = device != peer)

NULL_GPU_API int null_cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return kSuccess;
}

NULL_GPU_GIVES(cudaGetDeviceProperties, (void* properties, int device),
               write_properties(properties, device, &Member::offset13, 1008))
NULL_GPU_GIVES(cudaGetDeviceProperties_v2, (void* properties, int device),
               write_properties(properties, device, &Member::offset12, 1032))

NULL_GPU_API int null_cudaDeviceGetAttribute(int* value, int number, int device) {
  if (!Machine::get().has(device)) return failed(kInvalidDevice);
  *value = attribute(number, device);
  return kSuccess;
}

NULL_GPU_API int null_cudaDeviceGetPCIBusId(char* id, int size, int device) {
  if (!Machine::get().has(device)) return failed(kInvalidDevice);
  write_bus_id(id, size, device);
  return kSuccess;
}

NULL_GPU_API int null_cudaDeviceGetByPCIBusId(int* device, char const* id) {
  char own[16];
  for (*device = 0; *device < Machine::get().count(); ++*device) {
    write_bus_id(own, sizeof own, *device);
    if (std::strcmp(id, own) == 0) return kSuccess;
  }
  return failed(kInvalidValue);
}

NULL_GPU_API int null_cudaGetLastError() { return take_last_error(); }
NULL_GPU_API int null_cudaPeekAtLastError() { return last_error(); }

// -- the driver

NULL_GPU_RETURNS(cuDriverGetVersion, entered, (int* version), null_cudaDriverGetVersion(version))
NULL_GPU_CHECKED(cuDeviceGetCount, entered_driver, (int* count), *count = Machine::get().count())

NULL_GPU_API int null_cuDeviceGet(int* device, int ordinal) {
  if (Status const status = entered_driver("cuDeviceGet")) return status;
  if (!Machine::get().has(ordinal)) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

NULL_GPU_CHECKED(cuDeviceGetName, entered_driver, (char* name, int size, int),
                 std::snprintf(name, size, "%s", Machine::get().settings().name.c_str()))
NULL_GPU_CHECKED(cuDeviceGetUuid, entered_driver, (void* uuid, int device),
                 write_uuid(uuid, device))
NULL_GPU_ALIASES(null_cuDeviceGetUuid, null_cuDeviceGetUuid_v2);
NULL_GPU_RETURNS(cuDeviceCanAccessPeer, entered_driver, (int* can, int device, int peer),
                 null_cudaDeviceCanAccessPeer(can, device, peer))
NULL_GPU_ALIASES(null_cudaDeviceGetPCIBusId, null_cuDeviceGetPCIBusId);
NULL_GPU_CHECKED(cuDeviceTotalMem_v2, entered_driver, (Size * bytes, int),
                 *bytes = Machine::get().settings().memory)
NULL_GPU_RETURNS(cuDeviceGetAttribute, entered_driver, (int* value, int number, int device),
                 null_cudaDeviceGetAttribute(value, number, device))

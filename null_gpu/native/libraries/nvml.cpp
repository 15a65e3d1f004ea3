// native/libraries/nvml.cpp: the part of NVML with which PyTorch counts devices and finds
// fabrics, and with which vLLM recognizes a card.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstring>

#include "null_gpu/native/machine.hpp"

using namespace allocbench::null_gpu;

namespace {

// A handle is the number of the card plus 1.
Handle handle_of(int card) { return reinterpret_cast<Handle>(Address(card) + 1); }

struct Memory {  // nvmlMemory_t
  unsigned long long total, free, used;
};

}  // namespace

NULL_GPU_API int null_nvmlInit() { return kSuccess; }
NULL_GPU_ALIASES(null_nvmlInit, null_nvmlInit_v2, null_nvmlInitWithFlags, null_nvmlShutdown);
NULL_GPU_TEXTS(nvmlErrorString)
NULL_GPU_DOES(nvmlDeviceGetCount_v2, (unsigned* count),
              *count = static_cast<unsigned>(Machine::get().settings().count))
NULL_GPU_DOES(nvmlDeviceGetHandleByIndex_v2, (unsigned card, Handle* device),
              *device = handle_of(static_cast<int>(card)))

NULL_GPU_API int null_nvmlDeviceGetHandleByPciBusId_v2(char const* id, Handle* device) {
  unsigned bus = 1;
  std::sscanf(id, "%*x:%x", &bus);
  *device = handle_of(static_cast<int>(bus) - 1);
  return kSuccess;
}

NULL_GPU_DOES(nvmlDeviceGetHandleByUUID, (char const*, Handle* device), *device = handle_of(0))
NULL_GPU_DOES(nvmlDeviceGetUUID, (Handle device, char* uuid, unsigned size),
              std::snprintf(uuid, size, "GPU-00000000-0000-0000-0000-%012llx",
                            static_cast<unsigned long long>(reinterpret_cast<Address>(device))))
NULL_GPU_DOES(nvmlDeviceGetName, (Handle, char* name, unsigned size),
              std::snprintf(name, size, "%s", Machine::get().settings().name.c_str()))

NULL_GPU_API int null_nvmlDeviceGetCudaComputeCapability(Handle, int* major, int* minor) {
  int const capability = Machine::get().settings().compute_capability;
  *major = capability / 10;
  *minor = capability % 10;
  return kSuccess;
}

NULL_GPU_API int null_nvmlDeviceGetMemoryInfo(Handle, Memory* memory) {
  auto const total = Machine::get().settings().memory, free = current_memory().free();
  *memory = {total, free, total - free};
  return kSuccess;
}

NULL_GPU_DOES(nvmlSystemGetCudaDriverVersion_v2, (int* version),
              *version = Machine::get().driver_version())
NULL_GPU_DOES(nvmlDeviceGetComputeRunningProcesses, (Handle, unsigned* count, void*), *count = 0)
NULL_GPU_DOES(nvmlDeviceGetNvLinkRemoteDeviceType, (Handle, unsigned, int* type),
              *type = 255)  // NVML_NVLINK_DEVICE_TYPE_UNKNOWN
NULL_GPU_GIVES(nvmlDeviceGetNvLinkRemotePciInfo_v2, (Handle, unsigned, void*), kNvmlNotSupported)
NULL_GPU_DOES(nvmlDeviceGetP2PStatus, (Handle, Handle, int, int* status),
              *status = 0)  // NVML_P2P_STATUS_OK

// After the version come cluster, status, clique, state (0: not supported) and health.
NULL_GPU_DOES(nvmlDeviceGetGpuFabricInfoV, (Handle, void* info),
              std::memset(static_cast<char*>(info) + 4, 0, 32))

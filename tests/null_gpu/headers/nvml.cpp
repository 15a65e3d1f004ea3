// Compares what the null GPU's NVML writes with NVML's header; argument: the null GPU's library.
// SPDX-License-Identifier: Apache-2.0
#include <nvml.h>

#include "core.hpp"
#include "null_gpu/native/api.hpp"

static_assert(static_cast<int>(allocbench::null_gpu::kNvmlNotSupported) ==
              static_cast<int>(NVML_ERROR_NOT_SUPPORTED));

int main(int, char** arguments) {
  if (!load(arguments[1], "memory=110000000\ncontext=0\ncount=2\n")) return 2;
  nvmlDevice_t device{};
  check("a handle", NULL_GPU(nvmlDeviceGetHandleByIndex_v2)(1, &device), NVML_SUCCESS);
  unsigned count = 0;
  NULL_GPU(nvmlDeviceGetCount_v2)(&count);
  check("devices", count, 2);
  Room<nvmlMemory_t> memory;
  NULL_GPU(nvmlDeviceGetMemoryInfo)(device, &memory.here);
  memory.check_behind("behind nvmlMemory_t");
  check("total", static_cast<long long>(memory.here.total), 110000000);
  check("used", static_cast<long long>(memory.here.used), 0);
  check("free", static_cast<long long>(memory.here.free), 110000000);
  Room<nvmlGpuFabricInfoV_t> fabric;
  fabric.here.version = nvmlGpuFabricInfo_v2;
  NULL_GPU(nvmlDeviceGetGpuFabricInfoV)(device, &fabric.here);
  fabric.check_behind("behind nvmlGpuFabricInfoV_t");
  check("version", fabric.here.version, nvmlGpuFabricInfo_v2);
  check("state", fabric.here.state, NVML_GPU_FABRIC_STATE_NOT_SUPPORTED);
  check("clique", fabric.here.cliqueId, 0);
  Room<nvmlIntNvLinkDeviceType_t> link;
  NULL_GPU(nvmlDeviceGetNvLinkRemoteDeviceType)(device, 0, &link.here);
  check("link", link.here, NVML_NVLINK_DEVICE_TYPE_UNKNOWN);
  Room<nvmlGpuP2PStatus_t> peers;
  NULL_GPU(nvmlDeviceGetP2PStatus)(device, device, NVML_P2P_CAPS_INDEX_READ, &peers.here);
  check("peers", peers.here, NVML_P2P_STATUS_OK);
  int major = 0, minor = 0;
  check("start", NULL_GPU(nvmlInitWithFlags)(0), NVML_SUCCESS);
  NULL_GPU(nvmlDeviceGetCudaComputeCapability)(device, &major, &minor);
  check("compute capability", 10 * major + minor, 90);
  int version = 0;
  NULL_GPU(nvmlSystemGetCudaDriverVersion_v2)(&version);
  check("version of CUDA", version, 13000);
  return wrong == 0 ? 0 : 1;
}

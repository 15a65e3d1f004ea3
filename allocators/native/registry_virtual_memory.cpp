// registry_virtual_memory.cpp: strategies that map pages, and the pool of the driver.
// SPDX-License-Identifier: Apache-2.0
#include "registry_lists.hpp"
#include "strategies/cuda_async.hpp"
#include "strategies/expandable.hpp"
#include "strategies/planned.hpp"
#include "strategies/xla_vmm.hpp"

namespace allocbench {

std::span<Registered const> virtual_memory_strategies() {
  return list<CudaAsync, Expandable, Planned, XlaVmm>();
}

}  // namespace allocbench
